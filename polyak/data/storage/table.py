"""Rows of mixed types in one block of memory, so that a random batch is one gather.

A transition is one record of a numpy structured dtype; a field of the table is a strided view with the usual
``[steps, envs, ...]`` shape. Memory is zeroed lazily by the operating system: an unused row costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union
from weakref import WeakSet

import numpy as np
import torch
from gymnasium import spaces

from polyak.experience.memory import zeros

ArrayObs = Union[np.ndarray, "dict[str, np.ndarray]"]
"""A batch of observations: one array [B, ...], or one per key of a Dict space."""

LARGE_ROW = 8192  # bytes; above it torch's gather (threaded) beats numpy's


def observation_dtype(space: spaces.Space, shape: Any) -> np.dtype:
    """The dtype of one stored observation: a subarray, or for a Dict space a record of subarrays."""
    if isinstance(space, spaces.Dict):
        return record_dtype({key: observation_dtype(sub, shape[key]) for key, sub in space.spaces.items()})
    return np.dtype((space.dtype, shape))


def record_dtype(fields: Mapping[str, np.dtype]) -> np.dtype:
    """An aligned record; wide elements first, so that little is lost to padding."""
    names = sorted(fields, key=lambda name: -fields[name].alignment)
    return np.dtype({"names": names, "formats": [fields[name] for name in names]}, align=True)


def unpack(field: np.ndarray) -> ArrayObs:
    """A field of records as a dict of arrays; any other array as it is. Views, nothing is copied."""
    names = field.dtype.names
    return field if names is None else {name: field[name] for name in names}


def assign(target: ArrayObs, index: Any, value: Any) -> None:
    """``target[index] = value``, key by key for Dict observations."""
    if isinstance(target, dict):
        for key, array in target.items():
            array[index] = value[key]
    else:
        target[index] = value


class Table:
    """``steps * envs`` records. A *cell* is a row's place in the flat table: ``step * envs + env``.

    Whoever writes into it notes so by :meth:`changed`, from which those who keep copies learn what to renew. Others who
    may write get their arrays from :meth:`lend`.

    Args:
        dtype: of a record.
        steps, envs: how many.
        on_disk: keep them in a temporary file instead of in memory.

    Attributes:
        columns: field -> view [steps, envs, ...] (for Dict observations a dict of such views).
        cells: the same views as [steps * envs, ...].
        bytes: the same memory as a tensor [steps * envs, bytes of a record].
        changes: how often :meth:`changed` was called.
    """

    def __init__(self, dtype: np.dtype, steps: int, envs: int, on_disk: bool = False):
        self.dtype, self.steps, self.envs = dtype, steps, envs
        self.rows = zeros(steps * envs, dtype, on_disk)
        self.columns = self._views(steps, envs)
        self.cells = self._views(steps * envs)
        self.bytes = torch.from_numpy(self.rows.view(np.uint8).reshape(len(self.rows), dtype.itemsize))
        self.changes, self._last = 0, -1
        self._scattered = 0  # changes up to this one were not to one slot after the other
        self._loans: WeakSet[_Loan] = WeakSet()

    def _views(self, *shape: int) -> dict[str, Any]:
        rows = self.rows.reshape(shape)
        return {name: unpack(rows[name]) for name in self.dtype.names or ()}

    def take(self, cells: np.ndarray) -> np.ndarray:
        """Copies of some records: [B] int64 cells -> [B] records."""
        if self.dtype.itemsize < LARGE_ROW:
            return self.rows.take(cells)
        gathered = torch.index_select(self.bytes, 0, torch.from_numpy(cells))
        return gathered.numpy().view(self.dtype).reshape(len(cells))

    def changed(self, slot: int | None = None) -> None:
        """Note that the rows of a slot were written, or any rows (None)."""
        self.changes += 1
        if slot is None:
            self._scattered = self.changes
        elif slot != self._last:
            if slot != (self._last + 1) % self.steps:
                self._scattered = self.changes
            self._last = slot

    def changed_since(self, changes: int) -> tuple[int, int]:
        """A range of slots that holds all that changed after so many changes: its first slot, and how many in the ring.

        ``(0, steps)`` is the whole table.
        """
        count = self.changes - changes
        if changes < self._scattered or count >= self.steps:
            return 0, self.steps
        return (self._last + 1 - count) % self.steps, count

    def lend(self, name: str) -> ArrayObs:
        """A column for others to read, and to write into for as long as they keep it or any view of it."""
        self.changed()
        column = self.columns[name]
        return (
            {key: self._lend(array) for key, array in column.items()}
            if isinstance(column, dict)
            else self._lend(column)
        )

    def _lend(self, column: np.ndarray) -> np.ndarray:
        loan = _Loan(column)
        self._loans.add(loan)
        return np.asarray(loan)

    @property
    def lent(self) -> bool:
        """Whether somebody still holds a column that was lent, or a view of one."""
        return len(self._loans) > 0


class _Loan:
    """Owner of an array that shares a column's memory. The array and all views of it keep it alive, and nobody else."""

    def __init__(self, column: np.ndarray):
        self.__array_interface__ = column.__array_interface__
        self._column = column  # which keeps the memory
