"""A curriculum of goals for hindsight replay: rare goals are chosen among the achieved ones.

Pitis, Chan, Zhao, Stadie and Ba 2020, "Maximum Entropy Gain Exploration for Long Horizon Multi-goal Reinforcement
Learning", arXiv:2007.02832: MEGA sets the achieved goal of least density; OMEGA keeps the environment's own goals the
more often, the better the achieved goals cover them.

Shapes: N environments, B goals, M kernels, D entries of a goal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper
from polyak.envs.wrappers.normalize import unwrap_vec_normalize
from polyak.seeding import derived_seed

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
METHOD, ATTRIBUTE = "set_goal", "goal"
"""The method that sets an environment's goal, and the attribute that is assigned where it has no such method."""
_STREAM = 2
"""Sets this wrapper's random numbers apart from those of the environments."""
_OWN = 1000
"""Goals of the environments that are kept."""


def log_density(goals: np.ndarray, centres: np.ndarray, bandwidth: float) -> np.ndarray:
    """log p(g) of the mean of M Gaussians with this standard deviation. goals [B, D], centres [M, D] -> [B]"""
    squares = (goals**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * goals @ centres.T
    exponents = -np.maximum(squares, 0) / (2 * bandwidth**2)
    most = exponents.max(1)
    total = np.log(np.exp(exponents - most[:, None]).sum(1)) + most
    return total - np.log(len(centres)) - goals.shape[1] * np.log(bandwidth * np.sqrt(2 * np.pi))


def share_of_own(divergence: float, offset: float) -> float:
    """alpha = 1 / max(b + KL, 1): how often OMEGA leaves an environment its own goal.

    Args:
        divergence: KL(p_own || p_achieved), in nats.
        offset: b.
    """
    return 1 / max(offset + divergence, 1.0)


class _Goals:
    """The newest of many goals.

    Args:
        capacity: number of goals to keep.
        size: D.
    """

    def __init__(self, capacity: int, size: int) -> None:
        self.rows = np.zeros((capacity, size), np.float32)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, len(self.rows))

    def add(self, goals: np.ndarray) -> None:
        """Keep some more [B, D]."""
        self.rows[(self.added + np.arange(len(goals))) % len(self.rows)] = goals
        self.added += len(goals)

    def drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """[count, D] float64, uniformly with replacement."""
        return self.rows[rng.integers(len(self), size=count)].astype(np.float64)


class VecGoalCurriculum(VecEnvWrapper):
    """Sets rare goals among those that were achieved (MEGA, arXiv:2007.02832).

    When an episode begins, some goals are drawn from those that were achieved in any episode. The environment's goal
    becomes the one of least density by a kernel density estimate. With probability ``1 / max(offset + KL(own ||
    achieved), 1)`` it keeps its own goal (OMEGA), so that training ends with the task itself once exploration covers
    it. Every algorithm that learns from goals works, with :class:`~polyak.experience.HerReplayBuffer` or without.

    A goal is set for one episode by the environment's method ``set_goal(goal)``, or, if it has none, by its attribute
    ``goal``, an array like its desired goal, as in Gymnasium-Robotics. Evaluation episodes belong in environments
    without this wrapper. ``info["own_goal"]`` at an episode's end is whether its goal was the environment's own.
    Achieved goals and random numbers are part of the environments' state, which is saved and resumed with a model.

    Args:
        venv: the VecEnv to wrap; not a normalised one.
        candidates: number of achieved goals among which each choice is made, and of own goals at which the divergence
            is estimated.
        bandwidth: standard deviation of the kernels, in units of the standard deviations of the achieved goals'
            entries.
        kernels: number of achieved goals from which the density is estimated, drawn for each choice.
        capacity: number of achieved goals to keep, the newest ones.
        offset: b: the larger, the later own goals are used; ``inf`` never uses them.

    Raises:
        ValueError: an argument is out of range; the observations have no goals, or goals that are not vectors; the
            environments are normalised, or no goal can be set; when an episode begins: they do not keep the goal that
            was set.
    """

    passes_on = ("rewards",)

    def __init__(
        self,
        venv: VecEnv,
        candidates: int = 100,
        bandwidth: float = 0.1,
        kernels: int = 1000,
        capacity: int = 50_000,
        offset: float = -3.0,
    ) -> None:
        super().__init__(venv)
        for name, value in (("candidates", candidates), ("kernels", kernels), ("capacity", capacity)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        if not bandwidth > 0:
            raise ValueError(f"bandwidth={bandwidth} must be positive.")
        if np.isnan(offset):
            raise ValueError(f"offset={offset} must be a number.")
        self.candidates, self.bandwidth, self.kernels, self.offset = candidates, bandwidth, kernels, offset
        space = _goal_space(venv)
        self._takes_by_method = _takes_by_method(venv, space)
        size = int(np.prod(space.shape or ()))
        self.achieved, self.own = _Goals(capacity, size), _Goals(_OWN, size)
        self.asked = np.zeros((self.num_envs, *(space.shape or ())), space.dtype)
        """[N, D] the goals that were set last."""
        self.keeps_own = np.ones(self.num_envs, bool)
        """[N] whether the episode's goal is the environment's own."""
        self._begins = np.zeros(self.num_envs, bool)
        self._rng = np.random.default_rng()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        seeds = self.venv.seed(seed)
        assert seeds[0] is not None
        self._rng = np.random.default_rng(derived_seed(seeds[0], _STREAM))
        return seeds

    def reset(self) -> VecEnvObs:
        observations: Any = self.venv.reset()
        return self._begin(observations, np.arange(self.num_envs))

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(observations, dict)
        over = np.flatnonzero(dones)
        now = {key: observations[key] for key in (ACHIEVED, DESIRED)}
        if len(over):
            now = {key: part.copy() for key, part in now.items()}
            for index in over.tolist():
                infos[index]["own_goal"] = bool(self.keeps_own[index])
                for key, part in now.items():
                    part[index] = infos[index]["terminal_observation"][key]
        self._check_kept(now[DESIRED])
        self.achieved.add(now[ACHIEVED].reshape(self.num_envs, -1))
        return self._begin(observations, over) if len(over) else observations, rewards, dones, infos

    def _begin(self, observations: Any, begun: np.ndarray) -> Any:
        """Choose the goals of the episodes that begin in these environments; the observations with them."""
        self.keeps_own[begun] = True
        if not len(begun):
            return observations
        self.own.add(observations[DESIRED][begun].reshape(len(begun), -1))
        if not len(self.achieved):
            return observations
        self.keeps_own[begun] = self._rng.random(len(begun)) < self.share_of_own()
        asked = begun[~self.keeps_own[begun]]
        if not len(asked):
            return observations
        desired = observations[DESIRED].copy()
        self.asked[asked] = self.rare(len(asked)).reshape(len(asked), *self.asked.shape[1:])
        desired[asked] = self.asked[asked]
        for index in asked.tolist():
            goal = self.asked[index].copy()
            if self._takes_by_method:
                self.venv.env_method(METHOD, goal, indices=[index])
            else:
                self.venv.set_attr(ATTRIBUTE, goal, indices=[index])
        self._begins[asked] = True
        return {**observations, DESIRED: desired}

    def _check_kept(self, desired: np.ndarray) -> None:
        """Refuse environments whose desired goals [N, D] differ from those that were set before the step."""
        for index in np.flatnonzero(self._begins).tolist():
            if not np.allclose(desired[index], self.asked[index], rtol=1e-4, atol=1e-6):
                way = f"{METHOD}(goal)" if self._takes_by_method else f"setting the attribute {ATTRIBUTE!r}"
                raise ValueError(
                    f"environment {index} was asked for the goal {self.asked[index]} by {way}, and after a step its "
                    f"{DESIRED!r} is {desired[index]}. Give its class a method {METHOD}(goal) that sets the goal which "
                    "observations and rewards show until the episode ends."
                )
        self._begins[:] = False

    # -- the choice of goals -------------------------------------------------------------------------------------------

    def rare(self, count: int) -> np.ndarray:
        """Returns for each of ``count`` episodes the achieved goal of least density among some candidates: [count,
        D]"""
        rows = self.achieved.drawn(count * self.candidates, self._rng)
        density = self._log_density(rows, self.achieved).reshape(count, self.candidates)
        return rows.reshape(count, self.candidates, -1)[np.arange(count), density.argmin(1)]

    def divergence(self) -> float:
        """KL(p_own || p_achieved) in nats, by the density estimates of both, at some own goals."""
        goals = self.own.drawn(self.candidates, self._rng)
        return float(np.mean(self._log_density(goals, self.own) - self._log_density(goals, self.achieved)))

    def share_of_own(self) -> float:
        """Returns the present probability that an environment keeps its own goal."""
        return 0.0 if self.offset == np.inf else share_of_own(self.divergence(), self.offset)

    def _log_density(self, goals: np.ndarray, of: _Goals) -> np.ndarray:
        """Returns the log densities [B] of goals [B, D], in units of the standard deviations of the achieved goals'
        entries."""
        spread = self.achieved.rows[: len(self.achieved)].std(0, dtype=np.float64)
        spread[spread < np.finfo(np.float32).eps] = 1.0  # an entry that never changes
        return log_density(goals / spread, of.drawn(self.kernels, self._rng) / spread, self.bandwidth)


def _goal_space(venv: VecEnv) -> spaces.Space:
    """Returns the space of the environments' desired goals.

    Raises:
        ValueError: the environments have no goals, goals that are not vectors, or achieved goals of another shape.
    """
    if unwrap_vec_normalize(venv) is not None:
        raise ValueError(
            "venv is normalised, and environments take goals as they are. Wrap in the other order: "
            "VecNormalize(VecGoalCurriculum(venv))."
        )
    space: Any = venv.observation_space
    if not isinstance(space, spaces.Dict) or not {ACHIEVED, DESIRED} <= set(space.spaces):
        raise ValueError(
            f"venv has observations of {space}, and a curriculum of goals needs a Dict with {ACHIEVED!r} and "
            f"{DESIRED!r}. Give the environment goals."
        )
    goals, achieved = space[DESIRED], space[ACHIEVED]
    if not isinstance(goals, spaces.Box | spaces.MultiBinary) or len(goals.shape) != 1 or goals.shape != achieved.shape:
        raise ValueError(
            f"venv wants goals in {goals} and achieves them in {achieved}. A density of goals needs vectors of equal "
            "length: let both spaces be a Box of one dimension."
        )
    return goals


def _takes_by_method(venv: VecEnv, space: spaces.Space) -> bool:
    """Whether goals are set by a method of the environments, rather than by their attribute.

    Raises:
        ValueError: they have neither.
    """
    if venv.has_attr(METHOD):
        return True
    held: Iterable[Any] = venv.get_attr(ATTRIBUTE) if venv.has_attr(ATTRIBUTE) else [None]
    if any(not isinstance(goal, np.ndarray) or goal.shape != space.shape for goal in held):
        raise ValueError(
            f"venv={venv!r} cannot be asked for a goal: it has no method {METHOD}, and no "
            f"attribute {ATTRIBUTE!r} that is an array of the shape {space.shape}. Give its class a method "
            f"{METHOD}(goal), which sets the desired goal of the episode that has just begun, and of no other."
        )
    return False
