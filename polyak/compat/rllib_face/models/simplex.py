"""The space of shares that sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class Simplex(spaces.Box):
    """Numbers of at least 0 that sum to 1 along the last axis.

    Args:
        shape: shape of a value; its last entry is the number of shares.
        concentration: [shares] parameters of the Dirichlet distribution that :meth:`sample` draws from; ``None``: ones.
        dtype: dtype of the numbers.
        seed: seed of the samples.

    Raises:
        ValueError: ``concentration`` has another length.
    """

    def __init__(self, shape: Any, concentration: Any = None, dtype: Any = np.float32, seed: int | None = None) -> None:
        super().__init__(0.0, 1.0, tuple(shape), dtype, seed)
        self.concentration = np.ones(self.dim) if concentration is None else np.asarray(concentration, float)
        if self.concentration.shape != (self.dim,):
            raise ValueError(
                f"concentration={concentration!r} must have {self.dim} numbers, as shape={shape} has shares."
            )

    @property
    def dim(self) -> int:
        """The number of shares."""
        return int(self.shape[-1])

    def sample(self, mask: Any = None, probability: Any = None) -> np.ndarray:
        return self.np_random.dirichlet(self.concentration, size=self.shape[:-1]).astype(self.dtype)

    def contains(self, x: Any) -> bool:
        tolerance = self.dim * float(np.finfo(self.dtype).eps)  # type: ignore[type-var]
        return super().contains(x) and bool(np.all(np.abs(np.sum(x, -1, dtype=float) - 1.0) <= tolerance))

    def __repr__(self) -> str:
        return f"Simplex({self.shape}, {self.concentration.tolist()})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Simplex)
            and super().__eq__(other)
            and np.array_equal(self.concentration, other.concentration)
        )
