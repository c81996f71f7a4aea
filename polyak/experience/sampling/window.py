"""Successive rows of a ring of transitions, and the sums of their rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyak import arrays
from polyak.arrays import Array, Column
from polyak.experience.ring import Ring


@dataclass
class Window:
    """``n`` successive rows for each of B drawn rows, cut where the episode or the ring's newest row ends it.

    The columns are copies: relabelling edits them in place and never touches the storage. Of sequences
    observations have a second axis, [B, L, ...], and ``n`` may be larger than L.
    """

    cells: Array  # [B, n] int64
    valid: Array  # [B, n] bool: still the same episode. One run of True in each row
    rewards: Array  # [B, n] float32
    observations: Column  # [B, ...] of the first row
    next_observations: Column  # [B, ...] successors of the last valid row


def look(ring: Ring, cells: np.ndarray, n: int, before: int = 0) -> tuple[Array, Array]:
    """Returns the window of ``n`` rows around each of some cells [B], in which the cell is number ``before``.

    A window never crosses the end of an episode, the newest row or the oldest one.

    Returns:
        cells [B, n], of which those before the episode repeat the first one inside, and whether each row belongs to the
        episode [B, n].
    """
    drawn = ring.index(cells)
    envs, steps = drawn % ring.n_envs, ring.index(np.arange(-before, n - before))
    drawn = (drawn // ring.n_envs)[:, None]
    rows = (drawn + steps) % ring.length
    around = rows * ring.n_envs + envs[:, None]
    last = rows == ring.newest
    for name in ("dones", "timeouts"):
        last |= ring.take(around, name) > 0
    valid = arrays.all_so_far(arrays.joined([drawn >= 0, ~last[:, before:-1]], 1))
    if before:
        age = (drawn - ring.oldest) % ring.length  # rows since the oldest one
        follows = ~last[:, :before] & (age + steps[:before] >= 0)
        earlier = arrays.backwards(arrays.all_so_far(arrays.backwards(follows)))
        valid = arrays.joined([earlier, valid], 1)
        first = (~earlier).sum(1)[:, None]
        around = arrays.along(around, (steps + before).clip(first))
    return around, valid


def spans(cells: Array, valid: Array, n_steps: int) -> tuple[Array, Array]:
    """Returns first and last cell [B, L] of the transitions of a window [B, n]; its last valid cell replaces those
    after it.

    If ``n_steps`` is 1 the two are one array.
    """
    newest = valid.shape[1] - 1 - arrays.single(arrays.backwards(valid)).argmax(1)[:, None]
    steps = arrays.place(np.arange(valid.shape[1] - n_steps + 1), arrays.device_of(cells))
    start = steps.clip(max=newest)
    first = arrays.along(cells, start)
    return first, first if n_steps == 1 else arrays.along(cells, (start + n_steps - 1).clip(max=newest))


def returns(rewards: Array, valid: Array, gamma: float, n_steps: int) -> tuple[Array, Array]:
    """``r_t + gamma r_(t+1) + ...`` over the k <= n_steps rows that are valid, and ``gamma**k`` (Sutton and Barto
    eq. 7.1), of the transitions that begin at each of the first L rows of a window; both 0 where that row is not valid.

    Args:
        rewards, valid: [B, n], with n = L + n_steps - 1
        gamma: discount of one step.
        n_steps: most rows that are summed.

    Returns:
        [B, L] each, float32.
    """
    length = valid.shape[1] - n_steps + 1
    exists = valid[:, :length]
    discounts = arrays.double(exists)
    summed = 0 * discounts
    for k in range(n_steps):
        inside = valid[:, k : k + length] & exists
        summed = summed + gamma**k * arrays.double(rewards[:, k : k + length]) * inside
        discounts = arrays.where(inside, gamma ** (k + 1) + 0 * discounts, discounts)
    return arrays.single(summed), arrays.single(discounts)
