"""Successive rows of a ring of transitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyak.data.storage.storage import Storage
from polyak.data.storage.table import ArrayObs


@dataclass
class Window:
    """``n`` successive rows for each of B drawn rows, cut where the episode or the ring's newest row ends it.

    The arrays are copies: whoever relabels them edits them in place and never touches the storage. Of sequences
    observations have a second axis, [B, L, ...], and ``n`` may be larger than L.
    """

    cells: np.ndarray  # [B, n] int64
    valid: np.ndarray  # [B, n] bool: still the same episode; the first column always is
    rewards: np.ndarray  # [B, n] float32
    observations: ArrayObs  # [B, ...] of the first row
    next_observations: ArrayObs  # [B, ...] successors of the last valid row


def windows(storage: Storage, cells: np.ndarray, steps: int, newest: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows from some on, and which of them belong to the episode.

    Args:
        storage: of which the slot ``newest`` was written last.
        cells: [B] the first rows.
        steps: how many rows, n.
    Returns:
        cells [B, n] and whether they are valid [B, n].
    """
    slots, envs = np.divmod(cells, storage.envs)
    slots = (slots[:, None] + np.arange(steps)) % storage.steps
    cells = slots * storage.envs + envs[:, None]
    ends = (storage.scalars("dones", cells) > 0) | (storage.scalars("timeouts", cells) > 0)
    ends |= slots == newest
    valid = np.ones(cells.shape, bool)
    valid[:, 1:] = ~np.logical_or.accumulate(ends[:, :-1], axis=1)
    return cells, valid
