"""Drawing from several shards as if they were one: how many rows each is asked for.

Shapes: B rows, S shards.
"""

from __future__ import annotations

import numpy as np


def dealt(masses: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """How many rows of a batch come from each shard, in proportion to its mass.

    One point is drawn in each of B equal parts of the whole mass, as within one tree (arXiv:1511.05952 section 3.3);
    shards whose share is a whole number of rows get exactly so many.

    Args:
        masses: [S] of the shards, at least 0, one of them more.
        strata: [B] in [0, 1).

    Returns:
        [S], B in all.
    """
    ends = np.cumsum(masses)
    found = np.searchsorted(ends, strata * ends[-1], side="right")
    last = np.flatnonzero(masses)[-1]  # rounding may put the last point beyond it
    return np.bincount(np.minimum(found, last), minlength=len(masses))
