"""Stored rewards of a hindsight buffer that meets an environment with another ``compute_reward``.

Relabelled rows are rewarded by the environment of now, the others by the rewards that they are stored with. Both must
come from one function, or a part of every batch rewards something else.
"""

from __future__ import annotations

import numpy as np

from polyak.arrays import assign, place
from polyak.experience.hindsight.relabel import Hindsight
from polyak.experience.ring import Ring
from polyak.warning import warn_user

ROWS_AT_ONCE = 8192
TOLERANCE = 1e-4
"""Share of the largest reward by which two may differ: goals are stored in single precision."""


def computed(relabel: Hindsight, ring: Ring, slots: np.ndarray) -> np.ndarray:
    """The rewards [K, n_envs] that ``compute_reward`` gives for the steps in ``slots`` [K], for the goals they had."""
    cells = (slots[:, None] * ring.n_envs + np.arange(ring.n_envs)).reshape(-1)
    found = np.empty(len(cells), np.float32)
    for start in range(0, len(cells), ROWS_AT_ONCE):
        some = cells[start : start + ROWS_AT_ONCE]
        achieved, desired = (ring.successors(some, key) for key in ("achieved_goal", "desired_goal"))
        found[start : start + ROWS_AT_ONCE] = relabel.compute_rewards(achieved, desired, some)
    return found.reshape(-1, ring.n_envs)


def computed_if_possible(relabel: Hindsight, ring: Ring, slots: np.ndarray) -> np.ndarray | None:
    """Computes the rewards by :func:`computed`; ``None`` if there is no environment, or its ``compute_reward`` fails,
    as in a closed one."""
    if relabel.env is None or relabel.her_ratio == 0:
        return None
    try:
        return computed(relabel, ring, slots)
    except Exception:  # of a user's own compute_reward, too
        return None


def reconcile(relabel: Hindsight, ring: Ring, slots: np.ndarray, before: np.ndarray | None) -> None:
    """Set the stored rewards to those of the environment's ``compute_reward``, with a warning if they change.

    They stay as they are if the function is unchanged, even if the environment's own rewards contain further terms.

    Args:
        relabel: holds the environment.
        ring: holds the stored rows.
        slots: [K] the rows.
        before: [K, n_envs] rewards that ``compute_reward`` gave for these rows where they were collected; ``None``:
            unknown.

    Raises:
        ValueError: the function has changed, and the stored rewards were not those of the earlier function: their
            further terms cannot be recomputed.
    """
    if relabel.env is None or relabel.her_ratio == 0 or not slots.size:
        return
    found, stored = computed(relabel, ring, slots), place(ring.columns["rewards"][slots], None)
    differ = ~_close(found, stored)
    if not differ.any() or (before is not None and _close(found, before).all()):
        return
    row = tuple(np.argwhere(differ)[0])
    what = (
        f"{np.count_nonzero(differ)} of {differ.size} rewards in the replay buffer are not those of the environment's "
        f"compute_reward(), such as {stored[row]:g}, which it computes as {found[row]:g}"
    )
    if before is not None and not _close(before, stored).all():
        raise ValueError(
            f"{what}; nor were they those of the compute_reward() of the environment that they come from, so that they "
            "cannot be recomputed. Empty the buffer first (replay_buffer.reset()), or use an environment with the same "
            "compute_reward()."
        )
    assign(ring.columns["rewards"], slots, found)
    ring.edited()
    warn_user(
        f"{what}. All have been recomputed with it, as those of relabelled goals are. To learn from the rewards as "
        "they were recorded, use an environment with the compute_reward() of then.",
        UserWarning,
    )


def _close(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    scale = max(float(np.abs(one).max(initial=0)), float(np.abs(other).max(initial=0)))
    return np.isclose(one, other, rtol=0, atol=TOLERANCE * scale, equal_nan=True)
