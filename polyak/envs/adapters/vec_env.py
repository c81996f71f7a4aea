"""A vectorised environment of Stable-Baselines3's kind as a batch whose steps are columns. No other module reads infos.

Shape letters: N environments, M entries of a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np

from polyak.arrays import assign, mapped
from polyak.envs.adapters.infos import EPISODE, FINAL, TRUNCATED, InfoRows, Infos, episode_columns
from polyak.envs.masks import Masks
from polyak.envs.nan_checks import OutcomeCheck
from polyak.envs.protocol import NOTHING, First, Outcome
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrappers.layers import above_normalisation
from polyak.envs.wrappers.normalize import VecNormalize, unwrap_vec_normalize

MANY = 64
"""Environments beyond which numpy's ``any()`` answers sooner than a list does."""
_holds_episode = methodcaller("__contains__", EPISODE)
"""Whether an info is of an episode that has ended for a Monitor."""


class FromVecEnv:
    """A :class:`~polyak.envs.VecEnv` as a :class:`~polyak.envs.protocol.BatchedEnv`.

    A vectorised environment resets itself, so the observation that it returns after an episode's last step belongs to
    the next episode. Its infos hold the true successor observation and the reason for the episode's end.

    Args:
        env: N environments.
        raw: keep observations and rewards as they were before :class:`~polyak.envs.VecNormalize`, for a replay buffer
            that normalises with the newest statistics when it is sampled. Values that a wrapper around ``VecNormalize``
            changes are kept as that wrapper returned them.
        masks: reader of the environments' action masks; ``None``: all choices are allowed. It may be assigned later,
            since infos show masks only after a reset.
    """

    device = None

    def __init__(self, env: VecEnv, raw: bool = False, masks: Masks | None = None) -> None:
        self.env, self.masks = env, masks
        self.num_envs = env.num_envs
        self.observation_space, self.action_space = env.observation_space, env.action_space
        above = above_normalisation(env)
        self._normalizer: VecNormalize | None = unwrap_vec_normalize(env)
        self._raw_observations = raw and self._normalizer is not None and not above.observations
        self._raw_rewards = raw and self._normalizer is not None and not above.rewards
        self._innermost = env.unwrapped
        self._advance: Callable[[Any], Any] = env.step_rows if env.steps_in_rows else env.step
        self._many = env.num_envs > MANY
        self._check = OutcomeCheck(env.num_envs, env.observation_space)
        self._none = np.zeros(env.num_envs, dtype=bool)
        self._none.setflags(write=False)

    @property
    def masked(self) -> bool:
        """Whether the environments have action masks, as far as is known."""
        return self.masks is not None

    resets = property(attrgetter("_innermost.resets"), doc="How often all environments were reset, by any program.")

    def reset(self) -> First:
        """Begin new episodes everywhere.

        Raises:
            NonFiniteError: an observation is NaN or infinite.
        """
        observations = self.env.reset()
        self._check.observations(observations)
        # called even where nothing is stored raw: a subclass's method may rely on it, as with Stable-Baselines3
        original = None if self._normalizer is None else self._normalizer.get_original_obs()
        stored = original if self._raw_observations else None
        masks = None if self.masks is None else self.masks.after_reset(observations if stored is None else stored)
        return First(observations, masks, stored)

    def step(self, actions: Any) -> Outcome:
        """Step each environment.

        Args:
            actions: [N, ...]; of a Dict or Tuple space a list of N actions.

        Raises:
            NonFiniteError: an observation or a reward is NaN or infinite, perhaps before ``VecNormalize`` clipped it.
        """
        observations, rewards, dones, infos = self._advance(actions)
        self._check.step(observations, rewards)
        ended = bool(dones.any()) if self._many else True in dones.tolist()
        said = infos.made.values() if type(infos) is InfoRows else infos
        plain = not (ended or self.masks is not None or self._normalizer is not None)
        # an episode may have ended for a Monitor, beneath a wrapper that begins another by itself
        if plain and not any(map(_holds_episode, said)):
            return Outcome(observations, rewards, self._none, self._none, observations, dones, ended, infos)
        return self._outcome(observations, rewards, dones, ended, infos)

    def _outcome(self, observations: Any, rewards: np.ndarray, dones: np.ndarray, ended: bool, infos: Infos) -> Outcome:
        """Builds the outcome of a step that needs more than the environments' results."""
        stored = None
        if self._normalizer is not None:
            stored, rewards = self._before_normalisation(rewards)
        then = unchanged = observations if stored is None else stored
        terminated = truncated = self._none
        if ended:
            then, truncated = self._ends(unchanged, dones, infos)
            terminated = np.greater(dones, truncated)
        masks, extras = None, NOTHING
        if self.masks is not None:
            masks = self.masks.after_step(unchanged, dones, infos)
            extras = {"next_masks": self._final_masks(self.masks, masks, then, dones, infos) if ended else masks}
        episodes = episode_columns(infos, dones if ended else None)
        return Outcome(
            then, rewards, terminated, truncated, observations, dones, ended, infos, episodes, masks, stored, extras
        )

    def _before_normalisation(self, rewards: np.ndarray) -> tuple[Any, np.ndarray]:
        """Returns the newest raw observations if these are stored, and the rewards before normalisation if those are.

        Raises:
            NonFiniteError: VecNormalize has clipped an infinity.
        """
        assert self._normalizer is not None
        self._check.values(self._normalizer.old_obs, self._normalizer.old_reward, self._check.steps)
        if self._raw_rewards:
            rewards = self._normalizer.get_original_reward()
        return self._normalizer.get_original_obs() if self._raw_observations else None, rewards

    def _ends(self, observations: Any, dones: np.ndarray, infos: Infos) -> tuple[Any, np.ndarray]:
        """Returns the successor observations of a step in which episodes ended, and which episodes were truncated [N].

        An episode whose last observation is not in its info counts as terminated: its successor's value cannot be
        computed.
        """
        truncated = np.zeros(len(dones), dtype=bool)
        successors = mapped(np.copy, observations)
        said: Any = infos.made if type(infos) is InfoRows else infos
        for i in dones.nonzero()[0].tolist():
            final = said[i].get(FINAL)
            if final is None:
                continue
            truncated[i] = said[i].get(TRUNCATED, False)
            if self._normalizer is not None and self._raw_observations:
                final = self._normalizer.before_normalization(i, final)
            assign(successors, i, final)
        self._check.observations(successors)
        return successors, truncated

    def _final_masks(
        self, masks: Masks, allowed: np.ndarray, successors: Any, dones: np.ndarray, infos: Infos
    ) -> np.ndarray:
        """Returns the masks of the true successors [N, M] in a step in which episodes ended; all choices are allowed
        where the mask is unknown."""
        allowed = allowed.copy()
        for i in dones.nonzero()[0].tolist():
            final = masks.final(i, successors, infos[i])
            allowed[i] = True if final is None else np.reshape(final, -1)
        return allowed

    def get_state(self) -> Any:
        """Returns everything that determines the environments' next steps; see :meth:`polyak.envs.VecEnv.get_state`."""
        return {**self.env.get_state(), "steps_checked": self._check.steps}

    def set_state(self, state: Any) -> None:
        """Restores a state that :meth:`get_state` returned."""
        others = dict(state)
        self._check.steps = int(others.pop("steps_checked", 0))  # missing in files of earlier versions
        self.env.set_state(others)
