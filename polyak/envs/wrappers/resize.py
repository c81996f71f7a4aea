"""Resized images, configured in YAML."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
from gymnasium.wrappers import ResizeObservation


class YAMLCompatResizeObservation(ResizeObservation):
    """Gymnasium's ``ResizeObservation``, with the size as a list, as in YAML.

    Args:
        env: an environment whose observations are images ``(H, W)`` or ``(H, W, C)``.
        shape: ``[height, width]``.
    """

    def __init__(self, env: gym.Env, shape: Sequence[int]) -> None:
        super().__init__(env, (int(shape[0]), int(shape[1])))
