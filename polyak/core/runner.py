"""The one environment loop: ask for actions, step, and say what truly happened.

A vectorised environment resets itself, so what it returns after an episode's last step belongs to the next episode.
The runner decodes that once: every :class:`Step` carries the true successor and tells termination from truncation.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from polyak.core.finite import StepCheck
from polyak.core.watching.time_split import TimeSplit
from polyak.envs import VecEnv, VecNormalize, unwrap_vec_normalize
from polyak.envs.vec.vec_env import VecEnvStepReturn

Observations = Any
"""np.ndarray [N, ...], or a dict of them."""
Act = Callable[[Observations], tuple[np.ndarray, np.ndarray]]
"""Observations [N, ...] -> actions in environment units, and the same actions in the network's units, to store."""


class Step(NamedTuple):
    """One step of N environments."""

    observations: Observations
    """[N, ...] what was acted on (before normalisation, if the runner is ``raw``)."""
    actions: np.ndarray
    """[N, ...] in the network's units."""
    env_actions: np.ndarray
    """[N, ...] in the environment's units."""
    rewards: np.ndarray
    """[N] (before normalisation, if the runner is ``raw``)."""
    next_observations: Observations
    """[N, ...] the true successors, also of an episode's last step."""
    dones: np.ndarray
    """[N] bool: an episode ended, for whatever reason."""
    truncated: np.ndarray
    """[N] bool: it was cut short while its state was not terminal."""
    infos: list[dict[str, Any]]
    new_obs: Observations
    """[N, ...] what to act on next: as ``next_observations``, but after a reset where an episode ended."""
    episode_starts: np.ndarray
    """[N] bool: ``observations`` is the first of an episode."""
    ended: bool
    """Whether ``dones`` has a True at all."""


class _Ahead(NamedTuple):
    """A step of the environments that nobody has asked for yet."""

    env_actions: np.ndarray
    actions: np.ndarray
    returned: VecEnvStepReturn | None
    error: BaseException | None

    def result(self) -> VecEnvStepReturn:
        if self.error is not None:
            raise self.error
        assert self.returned is not None
        return self.returned


class Runner:
    """Steps a vectorised environment with whatever chooses the actions.

    Args:
        env: N environments.
        raw: report observations and rewards as they were before :class:`~polyak.envs.VecNormalize`, which is what a
            replay buffer stores, since it normalises with the newest statistics when it is sampled.
        split: where to add up how long acting and stepping take.
    """

    def __init__(self, env: VecEnv, raw: bool = False, split: TimeSplit | None = None) -> None:
        self.env = env
        self.split = TimeSplit() if split is None else split
        self.normalizer: VecNormalize | None = unwrap_vec_normalize(env) if raw else None
        self.obs: Observations | None = None
        self.original_obs: Observations | None = None
        self.episode_starts = np.ones(env.num_envs, dtype=bool)
        self._none = np.zeros(env.num_envs, dtype=bool)
        self._none.setflags(write=False)
        self._finite = StepCheck(env)
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: _Ahead | None = None

    def reset(self) -> None:
        """Start new episodes everywhere."""
        self._ahead = None
        with self.split.env:
            self.obs = self.env.reset()
        self._finite.successors(self.obs)
        self.original_obs = self.normalizer.get_original_obs() if self.normalizer is not None else None
        self.episode_starts = np.ones(self.env.num_envs, dtype=bool)

    def step(self, act: Act) -> Step:
        """Act once in each environment; a step made :meth:`ahead` is handed out instead.

        Raises:
            NonFiniteError: an action, an observation or a reward is NaN or infinite; such an action is not sent.
        """
        if self.obs is None:
            self.reset()
        assert self.obs is not None
        observations = self.obs if self.normalizer is None else self.original_obs
        assert observations is not None
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            started = perf_counter()
            env_actions, actions = act(self.obs)
            acted = perf_counter()
            self._finite.actions(env_actions)
            new_obs, rewards, dones, infos = self.env.step(env_actions)
            self.split.env.seconds += perf_counter() - acted
            self.split.inference.seconds += acted - started
        else:
            env_actions, actions = ahead.env_actions, ahead.actions
            new_obs, rewards, dones, infos = ahead.result()
        self._finite.outcome(new_obs, rewards)
        starts, self.episode_starts, self.obs = self.episode_starts, dones, new_obs
        successors = new_obs
        if self.normalizer is not None:
            successors = self.original_obs = self.normalizer.get_original_obs()
            rewards = self.normalizer.get_original_reward()
        truncated = self._none
        ended = bool(np.count_nonzero(dones))  # on an array this small, a fraction of the cost of any()
        if ended:
            truncated = np.zeros_like(dones)
            successors = self._true_successors(successors, dones, infos)
            self._finite.successors(successors)
            for i in dones.nonzero()[0]:
                truncated[i] = infos[i].get("TimeLimit.truncated", False)
        return Step(
            observations,
            actions,
            env_actions,
            rewards,
            successors,
            dones,
            truncated,
            infos,
            new_obs,
            starts,
            ended,
        )

    @contextmanager
    def ahead(self, act: Act) -> Iterator[None]:
        """Choose actions now, and let the environments make that step in another thread while the block runs.

        When the block ends, in whatever way, the environments have come to rest. What they returned or raised is kept
        for the next :meth:`step`. Random numbers of acting are drawn before the block, by the calling thread.

        Raises:
            RuntimeError: nobody has asked for the step that was made ahead before.
        """
        if self._ahead is not None:
            raise RuntimeError(
                "a step that the environments have made ahead was not collected: with overlap=True, collect_rollouts() "
                "must take every step from self.runner.step(act)."
            )
        if self.obs is None:
            self.reset()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="polyak-env")
        with self.split.inference:
            env_actions, actions = act(self.obs)
        self._finite.actions(env_actions)
        with self.split.env:
            self.env.step_async(env_actions)
        returned = self._thread.submit(self.env.step_wait)
        try:
            yield
        finally:
            observations, self.obs = self.obs, None  # if the wait is interrupted, new episodes must begin
            with self.split.env:
                error = returned.exception()
            self.obs = observations
            self._ahead = _Ahead(env_actions, actions, returned.result() if error is None else None, error)

    def close_thread(self) -> None:
        """End the thread that :meth:`ahead` uses, once it has come to rest; the next call starts another."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_thread": None}  # a copy starts its own

    def _true_successors(
        self, successors: Observations, dones: np.ndarray, infos: list[dict[str, Any]]
    ) -> Observations:
        """``successors`` with the last observation of each ended episode in place of the first of the next."""
        ended = dones.nonzero()[0]
        if isinstance(successors, dict):
            successors = {key: value.copy() for key, value in successors.items()}
        else:
            successors = successors.copy()
        for i in ended:
            final = infos[i].get("terminal_observation")
            if final is None:
                continue
            if self.normalizer is not None:
                final = self.normalizer.get_original_terminal_obs(int(i))
            if isinstance(successors, dict):
                for key, value in successors.items():
                    value[i] = final[key]
            else:
                successors[i] = final
        return successors

    def state(self) -> dict[str, np.ndarray]:
        """The observations in hand, as arrays by name; empty before the first step."""
        if self.obs is None:
            return {}
        state = {"episode_starts": self.episode_starts}
        for name, obs in (("obs", self.obs), ("original_obs", self.original_obs)):
            if isinstance(obs, dict):
                state |= {f"{name}/{key}": value for key, value in obs.items()}
            elif obs is not None:
                state[name] = obs
        return state

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from the observations that :meth:`state` returned; the environments must be in the matching state."""
        if not state:
            return
        self._ahead = None
        self.episode_starts = state["episode_starts"].astype(bool)
        self.obs, self.original_obs = _observation(state, "obs"), _observation(state, "original_obs")


def _observation(state: dict[str, np.ndarray], name: str) -> Observations | None:
    parts = {key.split("/", 1)[1]: value for key, value in state.items() if key.startswith(name + "/")}
    return parts or state.get(name)
