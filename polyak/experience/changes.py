"""What was written into a ring since a copy of it was made, and who may be writing right now."""

from __future__ import annotations

from weakref import WeakSet

import numpy as np

from polyak.experience import arrays
from polyak.experience.arrays import Column


class Changes:
    """A record of the rows of a ring that were written.

    Args:
        length: rows of the ring.

    Attributes:
        count: how often :meth:`note` was called.
    """

    def __init__(self, length: int) -> None:
        self.length, self.count = length, 0
        self._last = -1
        self._scattered = 0  # changes up to this one were not to one row after the other

    def note(self, row: int | None = None) -> None:
        """A row was written; ``None``: any rows may have been."""
        self.count += 1
        if row is None:
            self._scattered = self.count
        elif row != self._last:
            if row != (self._last + 1) % self.length:
                self._scattered = self.count
            self._last = row

    def since(self, count: int) -> tuple[int, int]:
        """The rows that changed after so many changes: the first one, and how many follow in the ring, it included.

        ``(0, length)``: all of them may have.
        """
        missed = self.count - count
        if count < self._scattered or missed >= self.length:
            return 0, self.length
        return (self._last + 1 - missed) % self.length, missed


class Loans:
    """Arrays for others to read, and to write into for as long as they keep them or any view of them."""

    def __init__(self) -> None:
        self._loans: WeakSet[_Loan] = WeakSet()

    def __bool__(self) -> bool:
        """Whether an array that was lent, or a view of one, still exists."""
        return len(self._loans) > 0

    def lend(self, column: Column) -> Column:
        """The same memory as arrays whose life is followed."""
        return arrays.mapped(self._lend, column)

    def _lend(self, array: np.ndarray) -> np.ndarray:
        loan = _Loan(array)
        self._loans.add(loan)
        return np.asarray(loan)


class _Loan:
    """Owner of an array that shares another's memory: the array and all views of it keep it alive, nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self._array = array  # which keeps the memory
