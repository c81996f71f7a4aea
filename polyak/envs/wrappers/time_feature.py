"""The time that is left, as a part of the observation (Pardo et al. 2018, "Time Limits in Reinforcement Learning")."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.spaces import SpaceError
from polyak.envs.state import layers_of

KEY = "observation"
"""The part of a Dict observation that gets the feature."""


class TimeFeatureWrapper(gym.Wrapper):
    """Appends the share of the episode that is left to the observation: 1 at the start, 0 at the time limit.

    If episodes end after a fixed time, the value of a state depends on the remaining time (arXiv:1712.00378, section
    3): with the feature the task is a Markov decision process again.

    Args:
        env: an environment with observations in a Box of one dimension, or in a Dict with such a Box as
            ``"observation"``.
        max_steps: steps until the time limit, if none of the environment's wrappers is a ``TimeLimit``.
        test_mode: give 1 throughout, as if there were no limit.

    Raises:
        SpaceError: other observations.
    """

    def __init__(self, env: gym.Env, max_steps: int = 1000, test_mode: bool = False) -> None:
        super().__init__(env)
        space = env.observation_space
        part = space.spaces.get(KEY) if isinstance(space, spaces.Dict) else space
        if not isinstance(part, spaces.Box) or len(part.shape) != 1:
            raise SpaceError(
                f"TimeFeatureWrapper needs observations in a Box of one dimension, or a Dict with one under {KEY!r}, "
                f"got {space}. Flatten them: gymnasium.wrappers.FlattenObservation(env)."
            )
        low, high = (np.append(bound, end).astype(part.dtype) for bound, end in ((part.low, 0), (part.high, 1)))
        longer = spaces.Box(low, high, dtype=part.dtype.type)
        self.observation_space = (
            spaces.Dict({**space.spaces, KEY: longer}) if isinstance(space, spaces.Dict) else longer
        )
        self.dtype = part.dtype
        self._max_steps = time_limit(env) or max_steps
        self._test_mode = test_mode
        self._current_step = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._current_step = 0
        observation, info = self.env.reset(**kwargs)
        return self._get_obs(observation), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        self._current_step += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._get_obs(observation), reward, terminated, truncated, info

    def _get_obs(self, observation: Any) -> Any:
        """The observation with the feature."""
        left = 1.0 if self._test_mode else 1 - self._current_step / self._max_steps
        if isinstance(observation, dict):
            return {**observation, KEY: np.append(observation[KEY], left).astype(self.dtype)}
        return np.append(observation, left).astype(self.dtype)


def time_limit(env: gym.Env) -> int | None:
    """Returns the steps that the outermost ``TimeLimit`` allows; ``None`` if there is none."""
    limits = (layer._max_episode_steps for layer in layers_of(env) if isinstance(layer, gym.wrappers.TimeLimit))
    return next(limits, None)
