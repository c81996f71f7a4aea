"""An environment of short episodes, whose observations and rewards subclasses choose."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Short(gym.Env[Any, Any]):
    """Episodes of ``length`` steps; observations of zeros, and rewards of 1."""

    length = 4
    steps = 0

    def look(self) -> Any:
        """The present observation."""
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype)

    def reward(self, action: Any) -> float:
        """Of an action, before the next observation."""
        return 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        reward = self.reward(action)
        self.steps += 1
        return self.look(), reward, self.steps == self.length, False, {}
