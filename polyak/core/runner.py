"""The one environment loop: ask for actions, step, and say what truly happened.

A vectorised environment resets itself, so what it returns after an episode's last step belongs to the next episode.
The runner decodes that once: every :class:`Step` carries the true successor and tells termination from truncation.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from polyak.core.finite import StepCheck
from polyak.core.watching.time_split import TimeSplit
from polyak.data.step import Observations, Step
from polyak.envs import VecEnv, VecNormalize, unwrap_vec_normalize
from polyak.envs.masks import Masks
from polyak.envs.vec.vec_env import VecEnvStepReturn
from polyak.envs.wrappers.layers import above_normalisation


class Acted(NamedTuple):
    """What to do in N environments, and what to remember of it."""

    env_actions: Any
    """[N, ...] in the environment's units; of a Dict or Tuple space a list of N actions."""
    actions: np.ndarray
    """[N, ...] in the network's units, to be stored."""
    extras: dict[str, np.ndarray]
    """[N, ...] each: what else is to be stored."""


class Acting(Protocol):
    """What the runner needs of an :class:`~polyak.core.acting.actor.Actor`."""

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        """Actions for observations [N, ...]; which of them begin an episode [N]; which choices are allowed [N, ...]."""

    def state(self) -> dict[str, np.ndarray]:
        """What it must know to go on as if it had not been interrupted."""

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from what :meth:`state` returned."""


class _Ahead(NamedTuple):
    """A step of the environments that nobody has asked for yet."""

    acted: Acted
    returned: VecEnvStepReturn | None
    error: BaseException | None

    def result(self) -> VecEnvStepReturn:
        if self.error is not None:
            raise self.error
        assert self.returned is not None
        return self.returned


class Runner:
    """Steps a vectorised environment as an actor chooses.

    Args:
        env: N environments.
        actor: chooses the actions.
        raw: report observations and rewards as they were before :class:`~polyak.envs.VecNormalize`, which is what a
            replay buffer stores, since it normalises with the newest statistics when it is sampled. What a wrapper
            around it changes is reported as that returned it.
        split: where to add up how long acting and stepping take.
        masks: which choices the environments allow; ``None``: all. Every step then has ``masks`` and ``next_masks``
            [N, M] among its extras.
    """

    def __init__(
        self,
        env: VecEnv,
        actor: Acting,
        raw: bool = False,
        split: TimeSplit | None = None,
        masks: Masks | None = None,
    ) -> None:
        self.env, self.actor, self.masks = env, actor, masks
        self.allowed: np.ndarray | None = None
        """[N, M] what the masks say of the observations in hand."""
        self.split = TimeSplit() if split is None else split
        above = above_normalisation(env)
        normalizer = unwrap_vec_normalize(env) if raw else None
        self.normalizer: VecNormalize | None = None if above.observations else normalizer
        """Whose observations are reported as they were before it."""
        self._reward_normalizer: VecNormalize | None = None if above.rewards else normalizer
        self.obs: Observations | None = None
        self.original_obs: Observations | None = None
        self.episode_starts = np.ones(env.num_envs, dtype=bool)
        self._none = np.zeros(env.num_envs, dtype=bool)
        self._none.setflags(write=False)
        self._finite = StepCheck(env)
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: _Ahead | None = None
        self._origin = env.unwrapped
        self._resets = self._origin.resets

    def reset(self) -> None:
        """Start new episodes everywhere."""
        self._ahead = None
        with self.split.env:
            self.obs = self.env.reset()
        self._resets = self._origin.resets
        self._finite.successors(self.obs)
        self.original_obs = self.normalizer.get_original_obs() if self.normalizer is not None else None
        self.episode_starts = np.ones(self.env.num_envs, dtype=bool)
        self.heed(self.masks)

    def heed(self, masks: Masks | None) -> None:
        """Let ``masks`` say which choices are allowed from now on; ``None``: all."""
        self.masks = masks
        self.allowed = None if masks is None or self.obs is None else masks.after_reset(self._unchanged)

    @property
    def _unchanged(self) -> Observations | None:
        """The observations in hand, before normalisation where that is known."""
        return self.obs if self.original_obs is None else self.original_obs

    def take_up(self, observations: Observations | None) -> None:
        """Go on from observations [N, ...] that the caller has got from the environments."""
        self.obs, self._resets = observations, self._origin.resets

    @property
    def interrupted(self) -> bool:
        """Whether the environments were reset by another program, such as an evaluation, and not by this runner since:
        the observations in hand are out of date."""
        return self._origin.resets != self._resets

    def cut(self, step: Step) -> Step:
        """``step`` as it is, or, where :attr:`interrupted`, as the last one of its episodes: truncated where they had
        not ended, while new episodes have begun."""
        if not self.interrupted:
            return step
        infos = [
            info if done else {**info, "TimeLimit.truncated": True, "terminal_observation": _row(step.new_obs, i)}
            for i, (info, done) in enumerate(zip(step.infos, step.dones, strict=True))
        ]
        self.reset()
        return step._replace(
            truncated=step.truncated | ~step.dones,
            dones=np.ones_like(step.dones),
            infos=infos,
            new_obs=self.obs,
            ended=True,
        )

    @property
    def is_ahead(self) -> bool:
        """Whether the next :meth:`step` has been made already."""
        return self._ahead is not None

    def step(self) -> Step:
        """Act once in each environment; a step made :meth:`ahead` is handed out instead.

        Raises:
            NonFiniteError: an action, an observation or a reward is NaN or infinite; such an action is not sent.
        """
        if self.obs is None or (self._ahead is None and self._origin.resets != self._resets):
            self.reset()
        observations = self.obs if self.normalizer is None else self.original_obs
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            started = perf_counter()
            env_actions, actions, extras = self.actor.act(self.obs, self.episode_starts, self.allowed)
            chosen = perf_counter()
            if self._finite.continuous:
                self._finite.actions(env_actions, actions)
            new_obs, rewards, dones, infos = self.env.step(env_actions)
            self.split.env.seconds += perf_counter() - chosen
            self.split.inference.seconds += chosen - started
        else:
            env_actions, actions, extras = ahead.acted
            new_obs, rewards, dones, infos = ahead.result()
        self._finite.outcome(new_obs, rewards)
        starts, self.episode_starts, self.obs = self.episode_starts, dones, new_obs
        successors = new_obs
        if self.normalizer is not None:
            successors = self.original_obs = self.normalizer.get_original_obs()
        if self._reward_normalizer is not None:
            rewards = self._reward_normalizer.get_original_reward()
        terminated = truncated = self._none
        ended = True in dones.tolist()  # on an array this small, a fraction of the cost of any()
        if ended:
            successors, truncated = self._decoded(successors, dones, infos)
            self._finite.successors(successors)
            terminated = np.greater(dones, truncated)
        if self.masks is not None:
            extras = {**extras, **self._masked(self.masks, successors, dones, infos)}
        return Step(
            observations,
            actions,
            env_actions,
            rewards,
            successors,
            terminated,
            truncated,
            dones,
            infos,
            new_obs,
            starts,
            ended,
            extras,
        )

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Choose actions now, and let the environments make that step in another thread while the block runs.

        When the block ends, in whatever way, the environments have come to rest. What they returned or raised is kept
        for the next :meth:`step`. Random numbers of acting are drawn before the block, by the calling thread.

        Raises:
            RuntimeError: nobody has asked for the step that was made ahead before.
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
        self._finite.actions(acted.env_actions, acted.actions)
        with self.split.env:
            self.env.step_async(acted.env_actions)
        returned = self._thread.submit(self.env.step_wait)
        try:
            yield
        finally:
            observations, self.obs = self.obs, None  # if the wait is interrupted, new episodes must begin
            with self.split.env:
                error = returned.exception()
            self.obs = observations
            self._ahead = _Ahead(acted, returned.result() if error is None else None, error)

    def close_thread(self) -> None:
        """End the thread that :meth:`ahead` uses, once it has come to rest; the next call starts another."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_thread": None}  # a copy starts its own

    def _masked(
        self, masks: Masks, successors: Observations, dones: np.ndarray, infos: list[dict[str, Any]]
    ) -> dict[str, np.ndarray]:
        """What was allowed before the step and in its true successors; where nobody says, all is. What is allowed next
        is remembered."""
        before, self.allowed = self.allowed, masks.after_step(self._unchanged, dones, infos)
        then = self.allowed
        if True in dones.tolist():
            then = then.copy()
            for i in dones.nonzero()[0]:
                final = masks.final(int(i), successors, infos[i])
                then[i] = True if final is None else np.reshape(final, -1)
        return {"masks": before if before is not None else np.ones_like(then), "next_masks": then}

    def _decoded(
        self, successors: Observations, dones: np.ndarray, infos: list[dict[str, Any]]
    ) -> tuple[Observations, np.ndarray]:
        """``successors`` with the last observation of each ended episode in place of the first of the next, and which
        episodes were cut short [N]: a state that nobody knows cannot be one to go on from."""
        truncated = np.zeros(len(dones), dtype=bool)
        if isinstance(successors, dict):
            successors = {key: value.copy() for key, value in successors.items()}
        else:
            successors = successors.copy()
        for i in dones.nonzero()[0]:
            final = infos[i].get("terminal_observation")
            if final is None:
                continue
            truncated[i] = infos[i].get("TimeLimit.truncated", False)
            if self.normalizer is not None:
                final = self.normalizer.get_original_terminal_obs(int(i))
            if isinstance(successors, dict):
                for key, value in successors.items():
                    value[i] = final[key]
            else:
                successors[i] = final
        return successors, truncated

    def state(self) -> dict[str, np.ndarray]:
        """The observations in hand, as arrays by name; empty before the first step."""
        if self.obs is None:
            return {}
        return {
            "episode_starts": self.episode_starts,
            **flat("allowed", self.allowed),
            **flat("obs", self.obs),
            **flat("original_obs", self.original_obs),
        }

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from the observations that :meth:`state` returned; the environments must be in the matching state."""
        if not state:
            return
        self._ahead, self._resets = None, self._origin.resets
        self.episode_starts = state["episode_starts"].astype(bool)
        self.obs, self.original_obs = unflat("obs", state), unflat("original_obs", state)
        allowed = unflat("allowed", state)
        self.allowed = None if allowed is None or self.masks is None else allowed.astype(bool)


def _row(observations: Observations, i: int) -> Observations:
    """A copy of one environment's."""
    if isinstance(observations, dict):
        return {key: np.array(part[i]) for key, part in observations.items()}
    return np.array(observations[i])


def flat(name: str, value: Observations | None) -> dict[str, np.ndarray]:
    """An array, or a dict of them, under names that begin with ``name``; nothing for ``None``."""
    if isinstance(value, dict):
        return {f"{name}/{key}": part for key, part in value.items()}
    return {} if value is None else {name: value}


def unflat(name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of :func:`flat`."""
    parts = {key[len(name) + 1 :]: value for key, value in arrays.items() if key.startswith(name + "/")}
    return parts or arrays.get(name)
