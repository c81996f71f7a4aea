"""Successive rows of a ring of transitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyak.experience.batch import ArrayObs


@dataclass
class Window:
    """``n`` successive rows for each of B drawn rows, cut where the episode or the ring's newest row ends it.

    The arrays are copies: relabelling edits them in place and never touches the storage. Of sequences
    observations have a second axis, [B, L, ...], and ``n`` may be larger than L.
    """

    cells: np.ndarray  # [B, n] int64
    valid: np.ndarray  # [B, n] bool: still the same episode; the first column always is
    rewards: np.ndarray  # [B, n] float32
    observations: ArrayObs  # [B, ...] of the first row
    next_observations: ArrayObs  # [B, ...] successors of the last valid row
