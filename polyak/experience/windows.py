"""From drawn cells to a batch, in steps that compose. None of them changes stored data.

sampler.draw(...)                    -> cells [B]           which rows
look(ring, cells, n)                 -> Window [B, n]       what followed each of them in its episode
hindsight(ring, window)              -> Window [B, n]       relabelled with other goals
transitions(ring, window, n_steps)   -> Experience [B, L]   n-step returns; one (L = 1) or a sequence of them
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyak import arrays
from polyak.arrays import Array, Column
from polyak.experience.record import Experience
from polyak.experience.ring import Ring


class RowWindow(NamedTuple):
    """``n`` successive rows around each of B cells."""

    cells: Array
    """[B, n] int64; rows before the episode, or before the ring's oldest row, repeat the first one inside."""
    valid: Array
    """[B, n] bool: still the same episode. One run of True in each row."""
    rewards: Array
    """[B, n]"""
    goals: Column | None = None
    """[C, ...] replaces ``desired_goal`` in both observations of the first C windows; ``None``: no relabelling."""


def look(
    ring: Ring, cells: Array, n: int, before: int = 0, ends: tuple[str, ...] = ("terminated", "truncated")
) -> RowWindow:
    """The ``n`` rows of which a cell is number ``before``, for each of some cells [B].

    A window never crosses the end of an episode, the newest row or the oldest one. ``ends`` names the columns that are
    positive in an episode's last row.
    """
    cells = ring.index(cells)
    envs, steps = cells % ring.n_envs, ring.index(np.arange(-before, n - before))
    drawn = (cells // ring.n_envs)[:, None]
    rows = (drawn + steps) % ring.length
    around = rows * ring.n_envs + envs[:, None]
    last = rows == ring.newest
    for name in ends:
        last |= ring.take(around, name) > 0
    valid = arrays.all_so_far(arrays.joined([drawn >= 0, ~last[:, before:-1]], 1))
    if before:
        age = (drawn - ring.oldest) % ring.length  # rows since the oldest one
        follows = ~last[:, :before] & (age + steps[:before] >= 0)
        earlier = arrays.backwards(arrays.all_so_far(arrays.backwards(follows)))
        valid = arrays.joined([earlier, valid], 1)
        first = (~earlier).sum(1)[:, None]
        around = arrays.along(around, (steps + before).clip(first))
    return RowWindow(around, valid, ring.take(around, "rewards"))


def spans(cells: Array, valid: Array, n_steps: int) -> tuple[Array, Array]:
    """First and last cell [B, L] of the transitions of a window [B, n]; its last valid one stands for those after it.

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
        [B, L] each, float64.
    """
    length = valid.shape[1] - n_steps + 1
    exists = valid[:, :length]
    summed, discounts = 0.0 * arrays.double(rewards[:, :length]), arrays.double(exists)
    for k in range(n_steps):
        inside = valid[:, k : k + length] & exists
        summed = summed + gamma**k * arrays.double(rewards[:, k : k + length]) * inside
        discounts = arrays.where(inside, gamma ** (k + 1) + 0 * discounts, discounts)
    return summed, discounts


def transitions(ring: Ring, window: RowWindow, gamma: float, n_steps: int = 1) -> Experience:
    """One transition of up to ``n_steps`` rows from each of the first ``L = n - n_steps + 1`` rows of a window.

    Its reward is that of :func:`returns`, its successor that of the last row inside, and every target is
    ``rewards + discounts * value(next_observations)``.

    Returns:
        [B, L, ...] the columns of the ring; float32 ``rewards`` and ``discounts`` (``gamma**k``, or 0 where the
        successor is terminal); ``valid``. Where ``valid`` is False the last row inside is repeated, with reward and
        discount 0.
    """
    first, last = spans(window.cells, window.valid, n_steps)
    length, found = first.shape[1], ring.at(first)
    exists = window.valid[:, :length]
    rewards, discounts = returns(window.rewards, window.valid, gamma, n_steps)
    columns: dict[str, Column] = {name: ring.take(last, name) for name in ("terminated", "truncated")}
    columns["next_observations"] = found.next_observations if n_steps == 1 else ring.successors(last)
    columns["observations"] = found.observations
    if window.goals is not None:
        for name in ("observations", "next_observations"):  # copies, which may be written into
            columns[name]["desired_goal"][: len(window.goals)] = window.goals[:, None]
    return found.plus(
        **columns,
        rewards=arrays.single(rewards),
        discounts=arrays.single(discounts * ~columns["terminated"]),
        valid=exists,
    )
