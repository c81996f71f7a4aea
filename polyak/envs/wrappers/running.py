"""Mean and variance of a stream of batches, kept in float64."""

from __future__ import annotations

from typing import Any

import numpy as np


class RunningMeanStd:
    """Running mean and variance of all samples, by the parallel formula.

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979). The
    result equals that of one pass over all the data, whatever the batches.

    Args:
        epsilon: weight of the initial guess (mean 0, variance 1), in samples; it keeps the variance off zero at the
            start. 0 gives the plain statistics of the data.
        shape: shape of one sample.
    """

    fresh: RunningMeanStd | None = None
    """If set, all samples added here are also added there, for sending them to another process."""

    def __init__(self, epsilon: float = 1e-4, shape: tuple[int, ...] = ()):
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = float(epsilon)

    def copy(self) -> RunningMeanStd:
        """Returns an independent copy."""
        return RunningMeanStd.from_state_dict(self.state_dict())

    def combine(self, other: RunningMeanStd) -> None:
        """Add all data of ``other``."""
        self.update_from_moments(other.mean, other.var, other.count)

    def update(self, arr: np.ndarray) -> None:
        """Add a batch ``(B, *shape)``; the shape of one entry may also be broadcast to ``shape``."""
        arr = np.asarray(arr)
        if arr.shape[1:] != self.mean.shape:
            try:
                fits = np.broadcast_shapes(arr.shape[1:], self.mean.shape) == self.mean.shape
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(f"arr must have shape (B, *{self.mean.shape}), got {arr.shape}.")
        count = arr.shape[0]
        if count == 0:
            return
        if count == 1:  # the same numbers as below, sooner
            mean = np.asarray(arr[0], np.float64)
            self.update_from_moments(mean, np.zeros(mean.shape), 1)
            return
        # Sums are in float64 for any input: float32 sums of a long batch lose digits.
        mean = np.add.reduce(arr, axis=0, dtype=np.float64) / count
        deviation = arr - mean
        self.update_from_moments(mean, np.add.reduce(deviation * deviation, axis=0) / count, count)

    def update_from_moments(self, batch_mean: np.ndarray, batch_var: np.ndarray, batch_count: float) -> None:
        """Add a batch given by its mean, (population) variance and size."""
        if self.fresh is not None:
            self.fresh.update_from_moments(batch_mean, batch_var, batch_count)
        if batch_count == 0:
            return
        if self.count == 0:  # exact, which the formula is to rounding
            self.mean, self.var = np.array(batch_mean, np.float64), np.array(batch_var, np.float64)
            self.count = float(batch_count)
            return
        total = self.count + batch_count
        delta = batch_mean - self.mean
        squares = self.var * self.count + batch_var * batch_count + delta * delta * (self.count * batch_count / total)
        self.mean = self.mean + delta * (batch_count / total)
        self.var = squares / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        """Returns ``mean`` and ``var`` as arrays, ``count`` as a number."""
        return {"mean": np.array(self.mean), "var": np.array(self.var), "count": float(self.count)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.mean = np.array(state["mean"], np.float64)
        self.var = np.array(state["var"], np.float64)
        self.count = float(state["count"])

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> RunningMeanStd:
        """Returns a new object with a state that :meth:`state_dict` returned."""
        statistics = cls()
        statistics.load_state_dict(state)
        return statistics
