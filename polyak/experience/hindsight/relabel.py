"""Rows seen as if another goal had been desired."""

from __future__ import annotations

import copy
import json
from enum import Enum
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from typing_extensions import Self

from polyak.arrays import Array, place
from polyak.envs.batched import BatchedVecEnv
from polyak.envs.vec.reaching import add_note
from polyak.envs.vec.vec_env import VecEnv
from polyak.experience.episodes import Episodes
from polyak.experience.randomness import Randomness
from polyak.experience.ring import Ring
from polyak.experience.sampling.window import Window

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")


class Relabel(Protocol):
    """Rewrites windows; also restricts which rows may be drawn."""

    def prepare(self, steps: int, envs: int, observation_space: spaces.Space) -> Self:
        """Size for an empty ring [steps, envs]; also called to forget everything."""
        ...

    def seed(self, seed: int | None) -> None:
        """Restart the random numbers."""
        ...

    def added(self, slot: int, dones: np.ndarray, infos: list[dict[str, Any]]) -> np.ndarray:
        """A vectorised step was written to ``slot``; returns the cells that may be drawn from now on."""
        ...

    def cut(self, envs: np.ndarray) -> np.ndarray:
        """The running episodes of these envs end at the newest row; returns the cells that may be drawn from now on."""
        ...

    def sync(self, dones: np.ndarray, pos: int, full: bool) -> None:
        """Catch up if the ring, with these done flags [steps, envs], was written from elsewhere."""
        ...

    def eligible(self, cells: np.ndarray) -> np.ndarray:
        """[B] cells -> [B] whether they may be drawn."""
        ...

    def pool(self) -> np.ndarray:
        """Cells, in order, that may be drawn, and up to half as many that were overwritten since."""
        ...

    def can_sample(self) -> bool:
        """Whether any row may be drawn."""
        ...

    def __call__(self, ring: Ring, window: Window) -> None:
        """Relabel some rows of the window, in place."""
        ...

    def state_dict(self, slots: np.ndarray) -> dict[str, Any]:
        """Returns the random state and the records about these slots."""
        ...

    def load_state_dict(self, state: dict[str, Any], rows: np.ndarray, slots: np.ndarray) -> None:
        """Put saved ``rows`` into ``slots``."""
        ...


class GoalSelectionStrategy(Enum):
    """Which achieved goal replaces the desired one (section 4.5 of the HER paper)."""

    FUTURE = 0
    """A goal achieved at or after the row itself, in the same episode."""
    FINAL = 1
    """The one reached at the end of the episode."""
    EPISODE = 2
    """A goal achieved anywhere in the episode."""

    @classmethod
    def parse(cls, strategy: GoalSelectionStrategy | str) -> GoalSelectionStrategy:
        """An enum member from itself or from its name in any case."""
        if isinstance(strategy, cls):
            return strategy
        names = [member.name.lower() for member in cls]
        if not isinstance(strategy, str) or strategy.lower() not in names:
            raise ValueError(f"goal_selection_strategy must be one of {names}, got {strategy!r}.")
        return cls[strategy.upper()]


class Hindsight(Randomness):
    """Hindsight experience replay, Andrychowicz et al. 2017 (arXiv:1707.01495) algorithm 1.

    A share ``1 / (n_sampled_goal + 1)`` of each batch, rounded up, keeps its real goals; elsewhere a goal that was
    achieved later replaces the desired one, and the environment's ``compute_reward`` recomputes the reward of each step
    of the window. The strategies include the row itself: its own successor may become its goal. Only rows of finished
    episodes are drawn. ``dones`` stay as they were recorded: a termination does not depend on the goal.

    Args:
        env: a vectorised environment whose first member has ``compute_reward(achieved_goal, desired_goal, infos)``; one
            of environments in tensors has that method itself, for tensors of goals [B, ...].
        n_sampled_goal: relabelled rows for each real one, at least 0.
        goal_selection_strategy: a :class:`GoalSelectionStrategy` or its name.
        copy_info_dict: keep the info of each row and give it to ``compute_reward`` (slower; else it gets empty dicts).
    """

    def __init__(
        self,
        env: Any | None = None,
        n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy | str = "future",
        copy_info_dict: bool = False,
    ):
        if n_sampled_goal < 0:
            raise ValueError(f"n_sampled_goal must be at least 0, got {n_sampled_goal}. 0 replays real goals only.")
        self.set_env(env)
        self.n_sampled_goal, self.copy_info_dict = n_sampled_goal, copy_info_dict
        self.goal_selection_strategy = GoalSelectionStrategy.parse(goal_selection_strategy)
        self.her_ratio = 1 - 1 / (n_sampled_goal + 1)

    def set_env(self, env: Any | None) -> None:
        """Compute rewards with this VecEnv from now on.

        Raises:
            ValueError: its environments have no ``compute_reward``.
        """
        if isinstance(env, VecEnv) and not _has_compute_reward(env):
            which = _batch_of(env) or env.env_method("__str__", indices=[0])[0]
            raise ValueError(
                f"Hindsight replay recomputes rewards, and {which} has no compute_reward. Give its class a method "
                "compute_reward(achieved_goal, desired_goal, info), with "
                "arrays of goals [B, ...] in and rewards [B] out, or train without HerReplayBuffer."
            )
        self.env = env

    def prepare(self, steps: int, envs: int, observation_space: spaces.Space) -> Self:
        if not isinstance(observation_space, spaces.Dict) or not set(GOAL_KEYS) <= set(observation_space.spaces):
            raise ValueError(
                f"Hindsight replay needs a Dict observation space with the keys {GOAL_KEYS}, got {observation_space}."
            )
        self.episodes = Episodes(steps, envs)
        self.infos = np.full((steps, envs), None, object) if self.copy_info_dict else None
        return self

    def added(self, slot: int, dones: np.ndarray, infos: list[dict[str, Any]]) -> np.ndarray:
        if self.infos is not None:
            for env, info in enumerate(infos):  # the final observation is the VecEnv's addition, not the env's info
                self.infos[slot, env] = {key: value for key, value in info.items() if key != "terminal_observation"}
        return self.episodes.add(place(dones, None))

    def cut(self, envs: np.ndarray) -> np.ndarray:
        return self.episodes.close(envs)

    def sync(self, dones: np.ndarray, pos: int, full: bool) -> None:
        if not self.episodes.matches(pos, full):
            self.episodes.rebuild(place(dones, None), pos, full)

    def eligible(self, cells: np.ndarray) -> np.ndarray:
        return self.episodes.finished(cells)

    def pool(self) -> np.ndarray:
        return self.episodes.finished_cells()

    def can_sample(self) -> bool:
        return self.pool().size > 0

    def __call__(self, ring: Ring, window: Window) -> None:
        count = int(self.her_ratio * len(window.cells))
        if count == 0:
            return
        around, valid = (place(part[:count], None) for part in (window.cells, window.valid))
        goals = ring.successors(self.goal_cells(around[:, 0]), "achieved_goal")
        for observations in (window.observations, window.next_observations):
            desired = observations["desired_goal"]  # [B, ...], or [B, L, ...] of sequences
            desired[:count] = goals.reshape(len(goals), *(1,) * (desired.ndim - goals.ndim), *goals.shape[1:])
        row, step = np.nonzero(valid)
        cells = around[row, step]
        found = self.compute_rewards(ring.successors(cells, "achieved_goal"), goals[ring.index(row)], cells)
        window.rewards[ring.index(row), ring.index(step)] = ring.index(found)

    def goal_cells(self, cells: np.ndarray) -> np.ndarray:
        """Draws the rows [B] whose achieved goals become the goals of the rows in ``cells`` [B]."""
        step, first, last = self.episodes.bounds(cells)
        if self.goal_selection_strategy is GoalSelectionStrategy.FINAL:
            chosen = last
        else:
            future = self.goal_selection_strategy is GoalSelectionStrategy.FUTURE
            chosen = self.rng.randint(step if future else first, last + 1)
        return self.episodes.cell(chosen, cells % self.episodes.envs)

    def compute_rewards(self, achieved: Array, desired: Array, cells: np.ndarray) -> np.ndarray:
        """Returns the rewards [B] float32, in numpy, of achieving ``achieved`` [B, ...] for the goals ``desired`` [B,
        ...]."""
        if self.env is None:
            raise ValueError("Hindsight replay recomputes rewards with the environment: call set_env(env) first.")
        if self.infos is None:
            infos: list[Any] = [{}] * len(cells)
        else:
            infos = copy.deepcopy(self.infos.reshape(-1)[cells].tolist())
        rewards = self._asked(achieved, desired, infos)
        rewards = np.asarray(place(rewards, None), np.float32)
        if rewards.shape != (len(cells),):
            raise ValueError(
                f"compute_reward must return one reward per row: expected shape ({len(cells)},), got {rewards.shape}. "
                "It is called with arrays of goals [B, ...], so write it without assuming a single goal."
            )
        return rewards

    def _asked(self, achieved: Array, desired: Array, infos: list[dict[str, Any]]) -> Any:
        """The rewards of the environment's function."""
        assert self.env is not None
        try:
            if (batch := _batch_of(self.env)) is not None:
                return batch.compute_reward(*(place(goals, batch.device) for goals in (achieved, desired)), infos)
            achieved, desired = place(achieved, None), place(desired, None)
            return self.env.env_method("compute_reward", achieved, desired, infos, indices=[0])[0]
        except Exception as error:
            if self.infos is None:
                add_note(
                    error,
                    "raised by compute_reward(), which hindsight replay calls with empty infos. If it reads them, keep "
                    "them: replay_buffer_kwargs={'copy_info_dict': True}.",
                )
            raise

    def state_dict(self, slots: np.ndarray) -> dict[str, Any]:
        state: dict[str, Any] = {"rng": self.rng_state()}
        if self.infos is not None:
            state["infos"] = [[_to_json(info) for info in row] for row in self.infos[slots]]
        return state

    def load_state_dict(self, state: dict[str, Any], rows: np.ndarray, slots: np.ndarray) -> None:
        self.load_rng_state(state["rng"])
        if self.infos is None:
            return
        if "infos" not in state:
            raise ValueError("The saved buffer holds no infos: it was filled with copy_info_dict=False.")
        for row, slot in zip(rows, slots, strict=True):
            for env, info in enumerate(state["infos"][row]):
                self.infos[slot, env] = _from_json(info)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "env": None}  # environments are not data

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin


def _batch_of(env: Any) -> Any:
    """The environments in tensors that a VecEnv gives its contract; ``None``: it is of others."""
    return env.batch if isinstance(env, BatchedVecEnv) else None


def _has_compute_reward(env: VecEnv) -> bool:
    """Whether the environments have a ``compute_reward``; True for a foreign VecEnv that does not support the query."""
    if (batch := _batch_of(env)) is not None:
        return hasattr(batch, "compute_reward")
    try:
        return bool(env.env_method("has_wrapper_attr", "compute_reward", indices=[0])[0])
    except (AttributeError, NotImplementedError):
        return True


def _to_json(info: Any) -> Any:
    """An info as plain JSON values; arrays become {"__array__": values, "dtype": name}."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype != object:
            return {"__array__": value.tolist(), "dtype": str(value.dtype)}
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(
            f"an info holds {value!r} of type {type(value).__name__}, which can not be saved as JSON. "
            "Keep numbers, strings, lists, dicts and arrays in infos, or use copy_info_dict=False."
        )

    return json.loads(json.dumps(info, default=convert))


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            return np.array(value["__array__"], value["dtype"])
        return {key: _from_json(entry) for key, entry in value.items()}
    return [_from_json(entry) for entry in value] if isinstance(value, list) else value
