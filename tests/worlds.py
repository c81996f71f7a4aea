"""Environments of which a test says what is its own alone: what they show, what an action does, when episodes end."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class World(gym.Env[Any, Any]):
    """Shows zeros, for ``length`` steps an episode.

    Args:
        **given: attributes, in place of those of the class.

    Attributes:
        length: steps of an episode; None has no end.
        pays: the reward of an action.
        truncates: whether the end is that of the time, and not a terminal state.
        t: steps made in this episode.
    """

    observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    length: int | None = None
    pays = 0.0
    truncates = False
    t = 0

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def begin(self) -> None:
        """An episode, before its first observation."""

    def look(self) -> Any:
        """The present observation."""
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype)

    def act(self, action: Any) -> float:
        """What an action does, which is the ``t``-th. -> its reward"""
        return self.pays

    def over(self) -> bool:
        return self.t == self.length

    def info(self) -> dict[str, Any]:
        return {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.begin()
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward, over = self.act(action), self.over()
        return self.look(), reward, over and not self.truncates, over and self.truncates, self.info()


class Drawn(World):
    """Observations are drawn from their space, which a seed of the environment seeds, too."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        return super().reset(seed=seed, options=options)

    def look(self) -> Any:
        return self.observation_space.sample()
