"""Disturbed actions: noise and inertia, as in real motors."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.spaces import clipped


class ActionNoiseWrapper(gym.Wrapper):
    """Adds Gaussian noise to actions, and clips the sum to the action space.

    The noise comes from the environment's own generator, so a seeded reset repeats it.

    Args:
        env: an environment whose actions are in a Box.
        noise_std: standard deviation of the noise, in the unit of actions.

    Raises:
        ValueError: other actions, or a negative ``noise_std``.
    """

    def __init__(self, env: gym.Env, noise_std: float = 0.1) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Box):
            raise ValueError(f"ActionNoiseWrapper needs actions in a Box, got {env.action_space}.")
        if noise_std < 0:
            raise ValueError(f"noise_std must be at least 0, got {noise_std}.")
        self.noise_std = noise_std

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        noise = self.np_random.normal(0.0, self.noise_std, np.shape(action))
        return self.env.step(clipped(action + noise, self.env.action_space))  # type: ignore[arg-type]


class ActionSmoothingWrapper(gym.Wrapper):
    """Smooths actions exponentially: ``smoothing_coef * previous + (1 - smoothing_coef) * action``, from 0 at a reset.

    Actions of a Box stay within its bounds, in its dtype.

    Args:
        env: an environment whose actions are numbers, or arrays of them.
        smoothing_coef: share of the previous action; 0 changes nothing.

    Raises:
        ValueError: ``smoothing_coef`` is not between 0 and 1.
    """

    def __init__(self, env: gym.Env, smoothing_coef: float = 0.0) -> None:
        super().__init__(env)
        if not 0 <= smoothing_coef <= 1:
            raise ValueError(f"smoothing_coef must be between 0 and 1, got {smoothing_coef}.")
        self.smoothing_coef = smoothing_coef
        self._smoothed: Any = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._smoothed = None
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        previous = np.zeros_like(action) if self._smoothed is None else self._smoothed
        self._smoothed = self.smoothing_coef * previous + (1 - self.smoothing_coef) * action
        space = self.env.action_space
        return self.env.step(clipped(self._smoothed, space) if isinstance(space, spaces.Box) else self._smoothed)
