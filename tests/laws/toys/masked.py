"""A2C where environments say which choices there are: masks are a column of the rollout, and reach the loss.

Huang and Ontanon 2020, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms", arXiv:2006.14171.
Shapes: C choices.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.algorithms.a2c import A2C

CHOICES = 4


class Corridor(gym.Env):
    """One of four choices is right, and some of the others are closed; a closed one ends everything."""

    observation_space = spaces.Box(-1, 1, (CHOICES,), np.float32)
    action_space = spaces.Discrete(CHOICES)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        self.open = self.np_random.random(CHOICES) < 0.6
        self.right = int(self.np_random.integers(CHOICES))
        self.open[self.right] = True
        return np.eye(CHOICES, dtype=np.float32)[self.right]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.open[action], "a closed choice was made"
        self.steps += 1
        reward = float(action == self.right)
        return self._observe(), reward, False, self.steps == 10, {}

    def action_masks(self) -> np.ndarray:
        """[C] which choices are open."""
        return self.open


@dataclass(eq=False, repr=False)
class MaskedA2C(A2C):
    """A2C where environments have ``action_masks``."""

    action_spaces: ClassVar = (spaces.Discrete,)
    small = staticmethod(lambda: {"env": Corridor()})
