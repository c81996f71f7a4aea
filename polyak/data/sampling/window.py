"""Successive rows of a ring of transitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyak.data.batch import ArrayObs
from polyak.experience.ring import Ring


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


def windows(ring: Ring, cells: np.ndarray, steps: int, before: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The rows around some others, and which of them belong to the episode.

    Args:
        ring: its rows have ``dones`` and ``timeouts``.
        cells: [B] some rows.
        steps: how many rows, n.
        before: how many of these come before the given ones; never across the ring's first slot.
    Returns:
        cells [B, n], those before the episode replaced by its first one here; and whether they are valid [B, n].
    """
    slots, envs = np.divmod(cells, ring.n_envs)
    slots = slots[:, None] + np.arange(-before, steps - before)
    outside = slots[:, :before] < 0
    slots %= ring.length
    cells = slots * ring.n_envs + envs[:, None]
    ends = (ring.take(cells, "dones") > 0) | (ring.take(cells, "timeouts") > 0)
    ends |= slots == ring.newest
    valid = np.ones(cells.shape, bool)
    valid[:, before + 1 :] = ~np.logical_or.accumulate(ends[:, before:-1], axis=1)
    if before:
        gone = (ends[:, :before] | outside)[:, ::-1]
        valid[:, :before] = ~np.logical_or.accumulate(gone, axis=1)[:, ::-1]
        first = np.maximum(np.arange(steps), valid.argmax(1)[:, None])
        cells = np.take_along_axis(cells, first, 1)
    return cells, valid
