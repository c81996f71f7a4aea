"""The reduction of a window of successive rows: to one n-step transition, or to a sequence of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from polyak import arrays
from polyak.arrays import Array
from polyak.experience.sampling.window import returns, spans


class WindowEnds(NamedTuple):
    """First and last cells of the transitions made of B windows."""

    first: Array  # [B], or [B, L] of sequences: cells of their observations, actions and extras
    last: Array  # cells of the rows that end them; the same array as ``first`` if they are equal
    valid: Array | None  # [B, L] bool, for sequences: which transitions exist


class Reduce(Protocol):
    """Makes transitions of windows of successive rows of one episode."""

    @property
    def n_steps(self) -> int:
        """Rows that one transition spans at most."""
        ...

    @property
    def window(self) -> int:
        """Rows n of a window."""
        ...

    @property
    def before(self) -> int:
        """The number of rows of a window before the drawn row."""
        ...

    @property
    def random(self) -> bool:
        """Whether transitions span numbers of rows that are drawn."""
        ...

    def cut(self, valid: Array, rng: np.random.RandomState) -> Array:
        """Returns which rows [B, n] of windows count, if the ``valid`` ones could."""
        ...

    def ends(self, cells: Array, valid: Array) -> WindowEnds:
        """Returns first and last cells of the transitions in windows of cells [B, n], of which ``valid`` [B, n]
        count."""
        ...

    def returns(self, rewards: Array, valid: Array) -> tuple[Array, Array | None]:
        """Rewards [B, n] -> float32 rewards and discounts of the transitions; None: discounts of one step."""
        ...


@dataclass(frozen=True)
class NStep:
    """Reduces each window to one transition with an n-step return, Sutton and Barto eq. 7.1; of one step by default.

    Its reward is ``r_t + ... + gamma^(k-1) r_(t+k-1)`` and its discount ``gamma^k``, with k <= n rows until the episode
    or the experience ends; its next observation is the one after them.

    Args:
        n_steps: n, the largest number of rows that are summed.
        gamma: discount of one step.
        least: n is drawn for each transition, from this number to ``n_steps``; None: it is always ``n_steps``.
    """

    n_steps: int = 1
    gamma: float = 0.99
    least: int | None = None

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {self.n_steps}. 1 gives ordinary one-step transitions.")
        if self.least is not None and not 1 <= self.least <= self.n_steps:
            raise ValueError(
                f"n_steps=({self.least}, {self.n_steps}) is no range: write (least, most), with 1 <= least <= most."
            )
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be between 0 and 1, got {self.gamma}.")

    @cached_property
    def window(self) -> int:
        """Rows of a window."""
        return self.n_steps

    @property
    def before(self) -> int:
        """0: a window begins with the drawn row."""
        return 0

    @cached_property
    def random(self) -> bool:
        """Whether n is drawn."""
        return self.least is not None

    def cut(self, valid: Array, rng: np.random.RandomState) -> Array:
        """[B, n] bool, the first rows of each window, as many as are drawn for it."""
        if self.least is None:
            return valid
        rows = rng.randint(self.least, self.n_steps + 1, (len(valid), 1))
        return valid & arrays.place(np.arange(self.n_steps) < rows, arrays.device_of(valid))

    def ends(self, cells: Array, valid: Array) -> WindowEnds:
        """Returns first and last cells of one transition per window: [B] each."""
        first = cells[:, 0]
        last = first if self.n_steps == 1 else arrays.along(cells, valid.sum(1)[:, None] - 1)[:, 0]
        return WindowEnds(first, last, None)

    def returns(self, rewards: Array, valid: Array) -> tuple[Array, Array | None]:
        """Returns return and discount of one transition per window: [B] each."""
        summed, discounts = returns(rewards, valid, self.gamma, self.n_steps)
        return summed[:, 0], None if self.n_steps == 1 else discounts[:, 0]


@dataclass(frozen=True)
class Sequence:
    """``L = burn_in + length`` successive transitions of one episode, as in R2D2 (Kapturowski et al. 2019).

    A sequence may begin at any row, so that sequences overlap; a prioritised sampler keeps one priority for each row.
    Where the episode or the experience ends early, ``valid`` [B, L] is False and the last row is repeated, with rewards
    and discounts 0; where it began later, the first. If the recurrent state of a policy is stored as a column, a
    sequence starts from that of its first row; the first ``burn_in`` transitions only update it.

    With hindsight, all transitions of a sequence get the same goal.

    Args:
        length: transitions to learn from.
        burn_in: transitions before them, as far as the episode has them.
        n_step: the n-step return of each transition, within its episode; a buffer's own ``n_steps`` above 1 is used
            here.
    """

    length: int
    burn_in: int = 0
    n_step: NStep = NStep()

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length}: it counts transitions to learn from.")
        if self.burn_in < 0:
            raise ValueError(
                f"burn_in must be at least 0, got {self.burn_in}. 0 starts from the stored memory as it is."
            )
        if self.n_step.random:
            raise ValueError(f"the transitions of a sequence span a fixed number of rows, got {self.n_step}.")

    @property
    def before(self) -> int:
        """The number of burn-in transitions."""
        return self.burn_in

    @property
    def random(self) -> bool:
        """Never."""
        return False

    def cut(self, valid: Array, rng: np.random.RandomState) -> Array:
        """Returns all rows [B, n]."""
        return valid

    @property
    def n_steps(self) -> int:
        """Rows that one transition spans at most."""
        return self.n_step.n_steps

    @property
    def window(self) -> int:
        """Rows of a window: those of the sequence, and those that its last transition spans besides."""
        return self.burn_in + self.length + self.n_steps - 1

    def ends(self, cells: Array, valid: Array) -> WindowEnds:
        """Returns first and last cells of L transitions per window: [B, L] each."""
        return WindowEnds(*spans(cells, valid, self.n_steps), valid[:, : self.burn_in + self.length])

    def returns(self, rewards: Array, valid: Array) -> tuple[Array, Array | None]:
        """Returns returns and discounts of L transitions per window: [B, L] each."""
        summed, discounts = returns(rewards, valid, self.n_step.gamma, self.n_steps)
        return summed, None if self.n_steps == 1 else discounts


def make_reduce(reduce: Reduce | None, n_step: NStep) -> Reduce:
    """Returns the reduction of a buffer's windows: its own n-step returns, a ``reduce`` of another kind, or both.

    Raises:
        ValueError: both define the number of rows in a transition, differently.
    """
    if reduce is None:
        return n_step
    if n_step.n_steps in (1, reduce.n_steps):
        return reduce
    if not isinstance(reduce, Sequence) or reduce.n_steps > 1:
        raise ValueError(f"n_steps={n_step.n_steps} contradicts reduce={reduce}: leave one of them out.")
    return replace(reduce, n_step=n_step)
