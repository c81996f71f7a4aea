"""Curves of any length as a few hundred points: means of equal stretches of the x axis, with their extremes.

Minimum and maximum of each stretch are kept, so that no spike is lost however long the run; the mean is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Thinned:
    """A curve of few points.

    Fields: ``x`` [n] the mean of each stretch; ``count`` [n] the rows in it; ``mean``, ``low``, ``high``: [n] for each
    name, over those rows that have a value, NaN where none has.
    """

    x: np.ndarray
    count: np.ndarray
    mean: dict[str, np.ndarray]
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def thin(x: np.ndarray, values: Mapping[str, np.ndarray], n_points: int) -> Thinned:
    """Join rows that lie in the same of `n_points` equal stretches of `x`; as few rows as that stay as they are.

    Args:
        x: [rows], never falling.
        values: [rows] for each name; NaN means no value.
        n_points: at most so many points; at least 1.
    """
    starts = _starts(x, n_points)
    if not len(starts):
        empty = {name: np.empty(0) for name in values}
        return Thinned(np.empty(0), np.empty(0, int), empty, empty, empty)
    count = np.diff(np.append(starts, len(x)))
    mean, low, high = {}, {}, {}
    for name, column in values.items():
        column = np.asarray(column, dtype=np.float64)
        known = ~np.isnan(column)
        totals = np.add.reduceat(np.where(known, column, 0.0), starts)
        n_known = np.add.reduceat(known.astype(np.int64), starts)
        mean[name] = np.where(n_known > 0, totals / np.maximum(n_known, 1), np.nan)
        low[name] = np.fmin.reduceat(column, starts)
        high[name] = np.fmax.reduceat(column, starts)
    return Thinned(np.add.reduceat(np.asarray(x, dtype=np.float64), starts) / count, count, mean, low, high)


def _starts(x: np.ndarray, n_points: int) -> np.ndarray:
    """Return the index of the first row of each stretch that has rows."""
    if len(x) <= n_points:
        return np.arange(len(x))
    first, last = float(x[0]), float(x[-1])
    width = (last - first) / n_points
    if width <= 0:
        return np.zeros(1, int)
    edges = first + width * np.arange(n_points)
    return np.unique(np.searchsorted(x, edges, side="left"))


def rounded(values: np.ndarray, digits: int = 5) -> list[float | None]:
    """Return `values` with so many significant digits, as JSON has them: None for NaN and infinities."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.tolist()]
