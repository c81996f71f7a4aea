"""Observations as numbers: each combination of values is a row of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import as_named, parts

MOST_STATES = 10**8
"""Rows beyond which a table does not fit into memory."""


class _Digits(NamedTuple):
    """The digits of a number that belong to one part of a space."""

    part: str
    """Name of the part; empty if the space is not composed."""
    shape: tuple[int, ...]
    sizes: np.ndarray  # [K]
    starts: np.ndarray  # [K]


class Numbering:
    """Numbers the elements of a finite space: Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them.

    The last part changes fastest, as with the digits of a number.

    Args:
        space: the space.

    Raises:
        ValueError: it has infinitely many, or more than a table can have rows.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self._digits = [_digits(part.name, part.space, space) for part in parts(space)]
        self.sizes = np.concatenate([digits.sizes for digits in self._digits])
        size = 1
        for n in self.sizes.tolist():
            size *= n
        if size > MOST_STATES:
            raise ValueError(
                f"the observation space {space} has {size:.3g} values, and a table a row for each: more than "
                f"{MOST_STATES:.0e}. Use fewer values, or an algorithm with a network."
            )
        self.n_states = size
        self.starts = np.concatenate([digits.starts for digits in self._digits])
        self.strides = size // np.cumprod(self.sizes)
        """[K] how far apart the rows of neighbouring values are."""

    def states(self, observations: Any) -> tuple[np.ndarray, bool]:
        """Returns the numbers of one observation or of a batch of them.

        Args:
            observations: values of the space, or arrays of N of them (by name for a composed space).

        Returns:
            [N] int64, and whether it was one observation.

        Raises:
            ValueError: they are not values of the space.
        """
        named = as_named(observations, self._as_dict())
        columns, single = [], False
        for digits in self._digits:
            try:
                values = np.asarray(named[digits.part] if digits.part else named)
                single = values.shape == digits.shape
                if values.dtype.kind == "f" and not np.all(values == np.rint(values)):
                    raise ValueError("states are whole numbers")
                columns.append(values.reshape(-1, len(digits.sizes)).astype(np.int64, casting="unsafe") - digits.starts)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ValueError(
                    f"observation={observations!r:.100} does not fit the observation space {self.space}: {error}."
                ) from None
        values = np.concatenate(columns, axis=1)
        if not (single or self._is_batch(named)) or np.any((values < 0) | (values >= self.sizes)):
            raise ValueError(f"observation={observations!r:.100} does not lie in the observation space {self.space}.")
        return np.ravel_multi_index(tuple(values.T), tuple(self.sizes)).astype(np.int64).reshape(-1), single

    def _is_batch(self, named: Any) -> bool:
        digits = self._digits[0]
        return np.shape(named[digits.part] if digits.part else named)[1:] == digits.shape

    def _as_dict(self) -> spaces.Space[Any]:
        """A Tuple as the Dict that it becomes on the way through vectors of environments."""
        if not isinstance(self.space, spaces.Tuple):
            return self.space
        return spaces.Dict({part.name: part.space for part in parts(self.space)})


def _digits(name: str, part: spaces.Space[Any], whole: spaces.Space[Any]) -> _Digits:
    if isinstance(part, spaces.Discrete):
        return _Digits(name, (), np.array([int(part.n)]), np.array([int(part.start)]))
    if isinstance(part, spaces.MultiDiscrete):
        starts = np.reshape(getattr(part, "start", np.zeros_like(part.nvec)), -1)
        return _Digits(name, part.nvec.shape, part.nvec.reshape(-1).astype(np.int64), starts.astype(np.int64))
    if isinstance(part, spaces.MultiBinary):
        size = int(np.prod(part.shape))
        return _Digits(name, tuple(part.shape), np.full(size, 2), np.zeros(size, np.int64))
    raise ValueError(
        f"the observation space {whole} cannot be numbered: a table has a row for each value of Discrete, "
        "MultiDiscrete, MultiBinary, or a Dict or Tuple of these, but none for images or other real numbers. Wrap "
        "the environment so that its observations are such, or use an algorithm with a network: DQN, PPO."
    )
