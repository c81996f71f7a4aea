"""The seeds of environments that run side by side, from one."""

from __future__ import annotations

import numpy as np

_is_consecutive = False


def seeds_of(seed: int, count: int) -> list[int]:
    """Returns seeds for ``count`` environments.

    The first is ``seed`` itself, so that a single environment behaves as after ``reset(seed=seed)``. The others are
    drawn by :class:`numpy.random.SeedSequence`: counted up from ``seed``, most environments of a run with the next seed
    would play the episodes of this one, and the two runs would not be independent.

    Args:
        seed: at least 0.
        count: number of environments.

    Returns:
        ``count`` integers; those that are drawn are in [0, 2**31), which every backend accepts.
    """
    if _is_consecutive:
        return list(range(seed, seed + count))
    drawn = np.random.SeedSequence(seed).generate_state(count)[1:] >> 1
    return [seed, *map(int, drawn)]


def count_seeds_up() -> None:
    """Give environment ``i`` of this process's vectors ``seed + i`` from now on, as Stable-Baselines3 does."""
    global _is_consecutive
    _is_consecutive = True
