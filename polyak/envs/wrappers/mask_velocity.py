"""Observations without velocities: partially observable tasks, which need a recurrent policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

VELOCITIES: dict[str, tuple[int, ...]] = {
    "CartPole": (1, 3),
    "MountainCar": (1,),
    "MountainCarContinuous": (1,),
    "Pendulum": (2,),
    "LunarLander": (2, 3, 5),
    "LunarLanderContinuous": (2, 3, 5),
}
"""Task -> which entries of its observations are velocities."""


class MaskVelocityWrapper(gym.ObservationWrapper[np.ndarray, Any, np.ndarray]):
    """Sets the velocities in observations to 0.

    Args:
        env: an environment with a Box of one dimension as observation space.
        velocities: indices of the velocities; ``None``: those in :data:`VELOCITIES` for this task.

    Raises:
        ValueError: it is unknown which entries are velocities, or there are no such entries.
    """

    def __init__(self, env: gym.Env[np.ndarray, Any], velocities: Sequence[int] | None = None) -> None:
        super().__init__(env)
        spec = env.unwrapped.spec
        task = type(env.unwrapped).__name__ if spec is None else spec.id.partition("-v")[0]
        found = VELOCITIES.get(task) if velocities is None else tuple(velocities)
        if found is None:
            raise ValueError(
                f"MaskVelocityWrapper knows no velocities of {task}, only of {', '.join(VELOCITIES)}. Say which "
                "entries of the observations are: MaskVelocityWrapper(env, velocities=[...])."
            )
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not set(found) <= set(range(space.shape[0])):
            raise ValueError(f"velocities={list(found)} are no entries of the observations of {space}.")
        self.kept = np.ones(space.shape, space.dtype)
        self.kept[list(found)] = 0

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation * self.kept
