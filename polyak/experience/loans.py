"""Arrays that other code may write into."""

from __future__ import annotations

from weakref import WeakSet

import numpy as np

from polyak import arrays
from polyak.arrays import Column


class Loans:
    """Arrays that other code may read and write as long as it holds them or a view of them."""

    def __init__(self) -> None:
        self._loans: WeakSet[_Loan] = WeakSet()

    def __bool__(self) -> bool:
        """Whether an array that was lent, or a view of one, still exists."""
        return len(self._loans) > 0

    def lend(self, column: Column) -> Column:
        """The same memory as arrays whose lifetime is tracked."""
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
