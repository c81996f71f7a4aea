"""Batches drawn from a ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyak import arrays
from polyak.arrays import Array, Column
from polyak.experience.hindsight.goals import GoalRelabel
from polyak.experience.record import Experience
from polyak.experience.ring import Ring
from polyak.experience.samplers import Sampler
from polyak.experience.windows import look, transitions


class Replay:
    """Draws batches of transitions, or of sequences of them, from a ring.

    Args:
        ring: empty.
        sampler: which rows are drawn; it is prepared for the ring.
        gamma: discount of one step.
        n_steps: most rows that the return of a transition sums.
        length: transitions to learn from in each sequence; ``None``: batches of single transitions.
        burn_in: transitions of a sequence before those, as far as the episode goes back.
        relabel: for goals in hindsight, of the same ring.

    Raises:
        ValueError: a number is out of range, ``burn_in`` has no sequences to belong to, or the ring has fewer rows than
            a sequence and its returns look at.
    """

    def __init__(
        self,
        ring: Ring,
        sampler: Sampler,
        gamma: float,
        n_steps: int = 1,
        length: int | None = None,
        burn_in: int = 0,
        relabel: GoalRelabel | None = None,
    ) -> None:
        if n_steps < 1 or (length or 1) < 1 or burn_in < 0 or not 0 <= gamma <= 1:
            raise ValueError(
                f"A replay takes n_steps >= 1, length >= 1, burn_in >= 0 and gamma in [0, 1], got n_steps={n_steps}, "
                f"length={length}, burn_in={burn_in}, gamma={gamma}."
            )
        if burn_in and length is None:
            raise ValueError(f"burn_in={burn_in} comes before the length of a sequence: pass length= too.")
        self.ring, self.gamma, self.n_steps, self.relabel = ring, gamma, n_steps, relabel
        self.length, self.burn_in = length, burn_in
        self.window = burn_in + (length or 1) + n_steps - 1
        if self.window > ring.length:
            raise ValueError(
                f"A window of {self.window} rows does not fit a ring of length={ring.length}: use a longer ring."
            )
        self.sampler = sampler.prepare(ring.length, ring.n_envs)
        self.drawn = np.empty(0, np.int64)  # of the newest batch
        self._lanes = np.arange(ring.n_envs)

    def append(self, row: Mapping[str, Column]) -> None:
        """Store one row of the environments, see :meth:`Ring.append`."""
        self.ring.append(row)
        cells = self.ring.newest * self.ring.n_envs + self._lanes
        ready = cells if self.relabel is None else self.relabel.appended(row["terminated"] | row["truncated"])
        if self.sampler.adaptive:
            if self.relabel is not None:
                self.sampler.exclude(cells)
            self.sampler.include(ready)
            if self.ring.share_frames:
                self.sampler.exclude(self.ring.unreadable)

    def can_sample(self) -> bool:
        """Whether there is anything to draw; with hindsight, whether an episode has ended."""
        return self.ring.filled > 0 and (self.relabel is None or bool(self.relabel.eligible(self.relabel.pool()).any()))

    def sample(self, batch_size: int) -> Experience:
        """A batch [B] of transitions, or [B, burn_in + length] of sequences.

        Its columns are those of the ring, with ``discounts``, ``valid`` for sequences, and ``weights`` if the sampler
        has priorities, the same for all transitions of a sequence; see :func:`~polyak.experience.windows.transitions`.

        Raises:
            ValueError: there is nothing to draw yet.
        """
        if not self.can_sample():
            raise ValueError(
                "There is nothing to draw: append rows first (with hindsight, until an episode has ended)."
            )
        ring = self.ring
        cells, weights = self.sampler.draw(batch_size, ring.filled * ring.n_envs, self.relabel)
        if ring.share_frames and not self.sampler.adaptive and self.relabel is None:  # numbers counted from the oldest
            cells = (cells + ring.oldest * ring.n_envs) % (ring.length * ring.n_envs)
        self.drawn = cells
        batch = self.batch(cells)
        return batch if weights is None else batch.plus(weights=_spread(ring.index(weights), batch.discounts))

    def batch(self, cells: np.ndarray) -> Experience:
        """What :meth:`sample` makes of some cells [B]."""
        ring = self.ring
        if self.window == 1 and self.length is None and self.relabel is None:
            found = ring.at(ring.index(cells))
            return found.plus(discounts=self.gamma * arrays.single(~found.terminated))
        window = look(ring, cells, self.window, self.burn_in)
        if self.relabel is not None:
            window = self.relabel(ring, window, cells)
        sequences = transitions(ring, window, self.gamma, self.n_steps)
        if self.length is not None:
            return sequences
        return Experience({name: column for name, column in sequences[:, 0].items() if name != "valid"})

    def update_priorities(self, td_errors: Array) -> None:
        """Update the priorities of the newest batch by its TD errors [B]."""
        self.sampler.update_priorities(self.drawn, arrays.place(td_errors, None))

    def state(self) -> dict[str, Any]:
        """The ring's and the sampler's."""
        return {"ring": self.ring.state(), "sampler": self.sampler.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state` of a replay that was built alike; hindsight takes the episodes from the ring."""
        self.ring.load_state(state["ring"])
        if self.relabel is not None:
            self.relabel.follow(self.ring)
        self.sampler.load_state_dict(state["sampler"])


def _spread(weights: Array, like: Array) -> Array:
    """One number for each of B sequences [B], for each of their transitions: [B] or [B, L] as ``like``."""
    return weights if like.ndim == 1 else weights[:, None] + 0 * like
