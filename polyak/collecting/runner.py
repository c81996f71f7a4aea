"""The environment loop: actions from an actor, a step of the environments, and the transitions as columns."""

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
    """Actions for N environments, and the columns to store with them."""

    env_actions: Any
    """[N, ...] in the environment's units; for a Dict or Tuple space a list of N actions."""
    actions: np.ndarray
    """[N, ...] in the network's units, to be stored."""
    extras: dict[str, np.ndarray]
    """Name -> [N, ...] further columns to store."""


class Acting(Protocol):
    """The actor's interface for the runner: see :class:`~polyak.collecting.actor.Actor`."""

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        """Returns actions for observations [N, ...], given episode starts [N] and allowed choices [N, ...]."""

    def state(self) -> dict[str, np.ndarray]:
        """Returns the state that is needed to resume as if uninterrupted."""

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned."""


class _Ahead(NamedTuple):
    """A step of the environments that was made ahead."""

    acted: Acted
    outcome: Outcome | None
    error: BaseException | None


class Runner:
    """Steps a batch of environments with the actions of an actor.

    Args:
        env: N environments.
        actor: chooses the actions.
        split: measures the time of acting and stepping.
    """

    def __init__(self, env: BatchedEnv, actor: Acting, split: TimeSplit | None = None) -> None:
        self.env, self.actor = env, actor
        self.split = TimeSplit() if split is None else split
        self.obs: Observations | None = None
        """[N, ...] observations to act on next; ``None`` before the first reset."""
        self.original_obs: Observations | None = None
        """[N, ...] the same observations as they are stored, if that differs, such as before normalisation."""
        self.allowed: np.ndarray | None = None
        """[N, M] choices allowed next; ``None``: all."""
        self.steps = 0
        space = env.action_space
        numbers = any(isinstance(part.space, spaces.Box) for part in parts(space))
        self._checks_actions = numbers and env.device is None
        """Whether actions may be non-finite, and the host can check them without synchronisation."""
        self._sends_floats = isinstance(space, spaces.Box) and space.dtype.kind == "f"
        """Whether actions are float arrays in the environment's units; others are checked in the network's units."""
        self._begin()
        self.thread: ActorThread[Any] | None = None
        """The thread that steps this runner by itself, if any."""
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: _Ahead | None = None
        self._resets = env.resets

    def reset(self) -> None:
        """Start new episodes in all environments."""
        self._ahead = None
        with self.split.env:
            self.obs, self.allowed, self.original_obs = self.env.reset()
        self._resets = self.env.resets
        self._begin()

    @property
    def rollout_envs(self) -> int:
        """Number of environments whose steps form one rollout."""
        return self.env.num_envs

    def _begin(self) -> None:
        self.episode_starts: Any = full((self.env.num_envs,), True, bool, self.env.device)

    @property
    def stored_obs(self) -> Observations | None:
        """[N, ...] the observations to act on next, as they are stored."""
        return self.obs if self.original_obs is None else self.original_obs

    def take_up(self, observations: Observations | None) -> None:
        """Continue from observations [N, ...] that the caller got from the environments."""
        self.obs, self._resets = observations, self.env.resets

    @property
    def interrupted(self) -> bool:
        """Whether another program, such as an evaluation, has reset the environments since this runner did, so that its
        observations are out of date."""
        return self.env.resets != self._resets

    def cut(self, step: Step) -> Step:
        """Returns a step after which the runner was :attr:`interrupted` as the last one of its episodes, truncated
        unless they had ended. New episodes begin."""
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
        """Whether the next :meth:`step` has been made already, or may be made at any time."""
        return self._ahead is not None or self.thread is not None

    def step(self) -> Step:
        """Act once in each environment, or return a step that was made :meth:`ahead`.

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
        # unpacking is several times as fast as reading the fields one by one
        then, rewards, terminated, truncated, now, dones, ended, infos, episodes, masks, stored, more = outcome
        self.obs, self.original_obs, self.episode_starts, self.allowed = now, stored, dones, masks
        if masks is not None:
            extras["masks"] = np.ones_like(masks) if allowed is None else allowed
        extras.update(more)
        return Step(
            obs, actions, sent, rewards, then, terminated, truncated, dones, infos, now, starts, ended, extras, episodes
        )

    def _made_ahead(self) -> tuple[Acted, Outcome]:
        """Returns the step that was made :meth:`ahead`, or raises the environments' error."""
        assert self._ahead is not None
        (acted, outcome, error), self._ahead = self._ahead, None
        if error is not None:
            raise error
        assert outcome is not None
        return acted, outcome

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Choose actions now, and let the environments make that step in another thread while the block runs.

        After the block the environments are idle. The step or their error is kept for the next :meth:`step`. Random
        numbers of acting are drawn before the block, by the calling thread.

        Raises:
            RuntimeError: the previous step made ahead has not been taken.
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
            observations, self.obs = self.obs, None  # after an interrupted wait, new episodes must begin
            with self.split.env:
                error = outcome.exception()
            self.obs = observations
            self._ahead = _Ahead(acted, outcome.result() if error is None else None, error)

    def close_thread(self) -> None:
        """End the idle thread of :meth:`ahead`; the next call starts another. Stops the other :attr:`thread` until it
        is started again."""
        if self.thread is not None:
            self.thread.stop()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_thread": None}  # a copy starts its own

    def state(self) -> dict[str, np.ndarray]:
        """Returns the last observations as arrays by name; empty before the first step. Stops :attr:`thread` until it
        is started again."""
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
        """Restore the observations that :meth:`state` returned; the environments must be in the matching state."""
        if not state:
            return
        self._ahead, self._resets = None, self.env.resets
        here = {name: place(np.array(column), self.env.device) for name, column in state.items()}
        self.steps = int(state.get("steps", 0))  # files of earlier versions lack it
        self.episode_starts = here["episode_starts"] > 0
        self.obs, self.original_obs = unflat("obs", here), unflat("original_obs", here)
        allowed = unflat("allowed", here)
        self.allowed = allowed > 0 if allowed is not None and self.env.masked else None


def on_host(step: Step) -> Step:
    """Converts a step in tensors to one of arrays, with the infos that Stable-Baselines3 gives callbacks."""
    columns = {name: copied(column, None) for name, column in step._asdict().items() if name not in ("infos", "ended")}
    infos: list[dict[str, Any]] = [{} for _ in columns["dones"]]
    for i in columns["dones"].nonzero()[0]:
        last = mapped(lambda part, i=i: part[i], columns["next_observations"])
        infos[i] = {"terminal_observation": last, "TimeLimit.truncated": bool(columns["truncated"][i])}
    return step._replace(**columns, infos=infos)
