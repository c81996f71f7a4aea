"""Observations of any space as one array, as ``Catalog.get_preprocessor`` offers it to programs.

Modules here do not need it: polyak's policies make choices one-hot by themselves, and default encoders read the parts
of a Dict or Tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed


class Preprocessor:
    """Converts an observation to an array, by default like :func:`gymnasium.spaces.flatten`: choices become one-hot
    vectors, parts are concatenated.

    Args:
        observation_space: the space of the observations.
        options: options of RLlib's old stack, which are not used.

    Attributes:
        shape: shape of the array.
        observation_space: the space of the arrays.
    """

    def __init__(self, observation_space: spaces.Space, options: Any = None) -> None:
        self._obs_space = observation_space
        self.shape: tuple[int, ...] = self._init_shape(observation_space, options or {})

    def _init_shape(self, obs_space: Any, options: Any) -> tuple[int, ...]:
        """Returns the shape of the array."""
        return (int(spaces.flatdim(obs_space)),)

    def transform(self, observation: Any) -> np.ndarray:
        """Returns the array."""
        return np.asarray(spaces.flatten(self._obs_space, observation), np.float32)

    @property
    def size(self) -> int:
        """The number of entries of the array."""
        return int(np.prod(self.shape))

    @property
    def observation_space(self) -> spaces.Space:
        """The space of the arrays."""
        return spaces.Box(-1.0, 1.0, self.shape, np.float32)


class NoPreprocessor(Preprocessor):
    """A preprocessor of observations that are arrays."""

    def _init_shape(self, obs_space: Any, options: Any) -> tuple[int, ...]:
        return tuple(obs_space.shape)

    def transform(self, observation: Any) -> np.ndarray:
        return np.asarray(observation)

    @property
    def observation_space(self) -> spaces.Space:
        return self._obs_space


class OneHotPreprocessor(Preprocessor):
    """A preprocessor of choices."""


class TupleFlatteningPreprocessor(Preprocessor):
    """A preprocessor of a Tuple: its entries in order."""


class DictFlatteningPreprocessor(Preprocessor):
    """A preprocessor of a Dict: its entries by key."""


def get_preprocessor(space: spaces.Space) -> type[Preprocessor]:
    """Returns the class that fits an observation space."""
    if is_composed(space):
        return DictFlatteningPreprocessor if isinstance(space, spaces.Dict) else TupleFlatteningPreprocessor
    choices = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    return OneHotPreprocessor if choices else NoPreprocessor
