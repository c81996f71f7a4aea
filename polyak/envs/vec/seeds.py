"""The seeds of environments that run side by side, from one."""

from __future__ import annotations

import numpy as np

_is_consecutive = False


def seeds_of(seed: int, count: int) -> list[int]:
    """Seeds for ``count`` environments.

    The first is ``seed`` itself, so that one environment is what ``reset(seed=seed)`` makes it. The others are drawn by
    :class:`numpy.random.SeedSequence`: counted up from ``seed``, most environments of a run with the next seed would
    play the episodes of this one, and the two runs would not be independent.

    Args:
        seed: at least 0.
        count: how many.

    Returns:
        ``count`` integers; those that are drawn lie in [0, 2**31), which every backend takes.
    """
    if _is_consecutive:
        return list(range(seed, seed + count))
    drawn = np.random.SeedSequence(seed).generate_state(count)[1:] >> 1
    return [seed, *map(int, drawn)]


def count_seeds_up() -> None:
    """From now on environment ``i`` of this process's vectors gets ``seed + i``, as in Stable-Baselines3."""
    global _is_consecutive
    _is_consecutive = True
