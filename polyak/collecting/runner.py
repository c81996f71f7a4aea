"""The one environment loop: ask an actor, step the environments, and say in columns what happened."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from polyak.arrays import copied, flat, full, mapped, place, unflat
from polyak.collecting.actor_thread import ActorThread
from polyak.collecting.time_split import TimeSplit
from polyak.envs.adapters.infos import cut_short
from polyak.envs.nan_checks import check_finite, is_finite
from polyak.envs.nested_spaces import parts
from polyak.envs.protocol import BatchedEnv, Outcome
from polyak.experience.step import Observations, Step


class Acted(NamedTuple):
    """What to do in N environments, and what to store with it."""

    env_actions: Any
    """[N, ...] in the environment's units; of a Dict or Tuple space a list of N actions."""
    actions: np.ndarray
    """[N, ...] in the network's units, to be stored."""
    extras: dict[str, np.ndarray]
    """[N, ...] each: what else is to be stored."""


class Acting(Protocol):
    """What the runner needs of an :class:`~polyak.collecting.actor.Actor`."""

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        """Actions for observations [N, ...]; which of them begin an episode [N]; which choices are allowed [N, ...]."""

    def state(self) -> dict[str, np.ndarray]:
        """What it takes to resume as if there had been no interruption."""

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Resume from what :meth:`state` returned."""


class _Ahead(NamedTuple):
    """A step of the environments that was made before it is asked for."""

    acted: Acted
    outcome: Outcome | None
    error: BaseException | None


class Runner:
    """Steps a batch of environments as an actor chooses.

    Args:
        env: N environments.
        actor: chooses the actions.
        split: where to add up how long acting and stepping take.
    """

    def __init__(self, env: BatchedEnv, actor: Acting, split: TimeSplit | None = None) -> None:
        self.env, self.actor = env, actor
        self.split = TimeSplit() if split is None else split
        self.obs: Observations | None = None
        """[N, ...] what to act on next; ``None`` before the first reset."""
        self.original_obs: Observations | None = None
        """The same as experience keeps it, where that differs, as before normalisation."""
        self.allowed: np.ndarray | None = None
        """[N, M] which choices are allowed next; ``None``: all."""
        self.steps = 0
        space = env.action_space
        numbers = any(isinstance(part.space, spaces.Box) for part in parts(space))
        self._checks_actions = numbers and env.device is None
        """Whether actions might not be finite, and the host can look at them without waiting for a device."""
        self._sends_floats = isinstance(space, spaces.Box) and space.dtype.kind == "f"
        """Whether they are an array of floats in the environment's units; others are looked at in the network's."""
        self._begin()
        self.thread: ActorThread[Any] | None = None
        """One that steps it by itself, if there is any."""
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: _Ahead | None = None
        self._resets = env.resets

    def reset(self) -> None:
        """Start new episodes everywhere."""
        self._ahead = None
        with self.split.env:
            self.obs, self.allowed, self.original_obs = self.env.reset()
        self._resets = self.env.resets
        self._begin()

    @property
    def rollout_envs(self) -> int:
        """Environments whose steps make one rollout."""
        return self.env.num_envs

    def _begin(self) -> None:
        self.episode_starts: Any = full((self.env.num_envs,), True, bool, self.env.device)

    @property
    def stored_obs(self) -> Observations | None:
        """[N, ...] the observations to act on next, as experience keeps them."""
        return self.obs if self.original_obs is None else self.original_obs

    def take_up(self, observations: Observations | None) -> None:
        """Continue from observations [N, ...] that the caller has got from the environments."""
        self.obs, self._resets = observations, self.env.resets

    @property
    def interrupted(self) -> bool:
        """Whether the environments were reset by another program, such as an evaluation, and not by this runner since:
        the observations in hand are out of date."""
        return self.env.resets != self._resets

    def cut(self, step: Step) -> Step:
        """A step after which the runner was :attr:`interrupted`, as the last one of its episodes: truncated where they
        had not ended. New episodes begin."""
        self.reset()
        return step._replace(
            truncated=step.truncated | ~step.dones,
            dones=step.dones | True,
            infos=cut_short(step.infos, step.dones, step.new_obs) if step.infos else step.infos,
            new_obs=self.obs,
            ended=self.env.device is None,
        )

    @property
    def is_ahead(self) -> bool:
        """Whether the next :meth:`step` has been made already, or may be at any time."""
        return self._ahead is not None or self.thread is not None

    def step(self) -> Step:
        """Act once in each environment; a step made :meth:`ahead` is handed out instead.

        Raises:
            NonFiniteError: an action, an observation or a reward is NaN or infinite; such an action is not sent.
        """
        if self.obs is None or (self._ahead is None and self.env.resets != self._resets):
            self.reset()
        obs = self.obs if self.original_obs is None else self.original_obs
        starts, allowed = self.episode_starts, self.allowed
        if self._ahead is None:
            started = perf_counter()
            sent, actions, extras = self.actor.act(self.obs, starts, allowed)
            chosen = perf_counter()
            if self._checks_actions and not is_finite(sent if self._sends_floats else actions):
                check_finite("action", sent if self._sends_floats else actions, self.steps + 1)
            outcome = self.env.step(sent)
            self.split.env.seconds += perf_counter() - chosen
            self.split.inference.seconds += chosen - started
        else:
            (sent, actions, extras), outcome = self._made_ahead()
        self.steps += 1
        # unpacked at once, which costs a fraction of reading the fields one by one
        then, rewards, terminated, truncated, now, dones, ended, infos, episodes, masks, stored, more = outcome
        self.obs, self.original_obs, self.episode_starts, self.allowed = now, stored, dones, masks
        if masks is not None:
            extras["masks"] = np.ones_like(masks) if allowed is None else allowed
        extras.update(more)
        return Step(
            obs, actions, sent, rewards, then, terminated, truncated, dones, infos, now, starts, ended, extras, episodes
        )

    def _made_ahead(self) -> tuple[Acted, Outcome]:
        """The step that was made :meth:`ahead`; what the environments raised then is raised now."""
        assert self._ahead is not None
        (acted, outcome, error), self._ahead = self._ahead, None
        if error is not None:
            raise error
        assert outcome is not None
        return acted, outcome

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Choose actions now, and let the environments make that step in another thread while the block runs.

        When the block ends, in whatever way, the environments have come to rest. What they returned or raised is kept
        for the next :meth:`step`. Random numbers of acting are drawn before the block, by the calling thread.

        Raises:
            RuntimeError: the step that was made ahead before was not asked for.
        """
        if self._ahead is not None:
            raise RuntimeError(
                "a step that the environments have made ahead was not collected: with overlap=True, collect() must "
                "take every step from self.runner.step()."
            )
        if self.obs is None or self.interrupted:
            self.reset()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="polyak-env")
        with self.split.inference:
            acted = self.actor.act(self.obs, self.episode_starts, self.allowed)
        if self._checks_actions:
            check_finite("action", acted.env_actions if self._sends_floats else acted.actions, self.steps + 1)
        outcome = self._thread.submit(self.env.step, acted.env_actions)
        try:
            yield
        finally:
            observations, self.obs = self.obs, None  # if the wait is interrupted, new episodes must begin
            with self.split.env:
                error = outcome.exception()
            self.obs = observations
            self._ahead = _Ahead(acted, outcome.result() if error is None else None, error)

    def close_thread(self) -> None:
        """End the thread that :meth:`ahead` uses, once it has come to rest; the next call starts another. The other
        :attr:`thread` rests until it is started again."""
        if self.thread is not None:
            self.thread.stop()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_thread": None}  # a copy starts its own

    def state(self) -> dict[str, np.ndarray]:
        """The observations in hand, as arrays by name; empty before the first step. :attr:`thread` rests until it is
        started again."""
        if self.thread is not None:
            self.thread.stop()
        if self.obs is None:
            return {}
        columns = {
            "steps": np.array(self.steps),
            "episode_starts": self.episode_starts,
            **flat("allowed", self.allowed),
            **flat("obs", self.obs),
            **flat("original_obs", self.original_obs),
        }
        return {name: place(column, None) for name, column in columns.items()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Resume from the observations that :meth:`state` returned; the environments must be in the matching state."""
        if not state:
            return
        self._ahead, self._resets = None, self.env.resets
        here = {name: place(np.array(column), self.env.device) for name, column in state.items()}
        self.steps = int(state.get("steps", 0))  # which files of earlier versions do not have
        self.episode_starts = here["episode_starts"] > 0
        self.obs, self.original_obs = unflat("obs", here), unflat("original_obs", here)
        allowed = unflat("allowed", here)
        self.allowed = allowed > 0 if allowed is not None and self.env.masked else None


def on_host(step: Step) -> Step:
    """A step in tensors with arrays for columns, and the infos that Stable-Baselines3 gives callbacks."""
    columns = {name: copied(column, None) for name, column in step._asdict().items() if name not in ("infos", "ended")}
    infos: list[dict[str, Any]] = [{} for _ in columns["dones"]]
    for i in columns["dones"].nonzero()[0]:
        last = mapped(lambda part, i=i: part[i], columns["next_observations"])
        infos[i] = {"terminal_observation": last, "TimeLimit.truncated": bool(columns["truncated"][i])}
    return step._replace(**columns, infos=infos)
