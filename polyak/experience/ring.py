"""Storage: the newest rows of N environments, written in place, in numpy, on disk or on a torch device.

A replay buffer is a long ring of which cells are drawn; a rollout is a short one that is read whole. Rows of mixed
types lie in one block of memory, so that a random batch is one gather: a row is one record of a numpy structured type,
and a column is a strided view with the usual ``[length, n_envs, ...]`` shape. Memory is zeroed lazily by the operating
system: an unused row costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import gcd
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from polyak import arrays
from polyak.arrays import Array, Column, Device
from polyak.experience.memory import zeros
from polyak.experience.record import Experience

LARGE_ROW = 8192  # bytes; above it torch's gather (threaded) beats numpy's
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Ring:
    """The newest ``length`` rows ``[n_envs, ...]`` of columns.

    Args:
        layout: the record type of a row, see :meth:`Experience.layout`.
        length: rows.
        n_envs: environments in each row.
        device: device of the columns; ``None``: in numpy.
        on_disk: keep the rows in a temporary file; needs ``device=None``.

    Attributes:
        columns: name -> [length, n_envs, ...], as stored.
        records: the memory behind the columns; ``None`` if they were given.
        edits: number of changes to rows other than appending: see :meth:`edited`.
        loans: columns that other code may write into at any time.

    Raises:
        ValueError: a size is out of range, or arguments contradict each other.
    """

    def __init__(
        self,
        layout: np.dtype,
        length: int,
        n_envs: int = 1,
        device: torch.device | str | None = None,
        on_disk: bool = False,
    ) -> None:
        if length < 1 or n_envs < 1:
            raise ValueError(f"A ring takes length >= 1 and n_envs >= 1, got length={length}, n_envs={n_envs}.")
        self.layout, self.length, self.n_envs = layout, length, n_envs
        self.device: Device = None if device is None else torch.device(device)
        self.written = 0
        """Rows since the beginning."""
        self.records: Records | None = Records(layout, length, n_envs, self.device, on_disk)
        self._set_columns(self.records.columns)
        self.edits, self.loans = 0, Loans()
        self.edited_from = 0
        """The number of the first row, counted from the beginning, that the newest of the edits may have changed."""

    def _set_columns(self, columns: dict[str, Column]) -> None:
        self.columns = columns
        self._arrays = [pair for pair in columns.items() if isinstance(pair[1], np.ndarray)]
        self._others = [pair for pair in columns.items() if not isinstance(pair[1], np.ndarray)]

    @staticmethod
    def size_of(layout: np.dtype, cells: int) -> int:
        """Bytes of a ring of so many cells."""
        return layout.itemsize * cells

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return (
            sum(array.nbytes for array in arrays.leaves(self.columns)) if self.records is None else self.records.nbytes
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of one row as :meth:`at` returns it."""
        return self.layout.itemsize

    @property
    def filled(self) -> int:
        """Rows that can be read."""
        return min(self.written, self.length)

    @property
    def oldest(self) -> int:
        """Index of the oldest row that can be read."""
        return (self.written - self.filled) % self.length

    @property
    def newest(self) -> int:
        """Index of the newest row."""
        return (self.written - 1) % self.length

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, row: Mapping[str, Column]) -> None:
        """Write one row: every column, [n_envs, ...], of either library; in numpy only tensors in main memory. Other
        columns of ``row`` are left out."""
        at = self.written % self.length
        for name, column in self._arrays:  # one by one, as this is done at every step of a training
            column[at] = row[name]
        for name, column in self._others:
            arrays.assign(column, at, row[name])
        self.written += 1

    def extend(self, experience: Experience, copy: bool = False) -> None:
        """Write many rows [T, n_envs, ...]; those that fill an empty ring become its columns as they are,
        uncopied unless ``copy``: the ring then writes into them."""
        lead = tuple(arrays.first(experience.columns).shape[:2])
        whole = self.written == 0 and lead == (self.length, self.n_envs) and not copy
        if whole and experience.device == self.device and self._can_adopt(experience):
            self._set_columns({name: experience[name] for name in self.columns})
            self.records, self.written = None, self.length
            self.edited()
        else:
            self._extend_at_once(experience, lead[0])

    def _can_adopt(self, experience: Experience) -> bool:
        """Whether all columns are of the stored types and can be written into: those of another process cannot."""
        given = dict(arrays.paths(experience.columns))
        return all(
            given[path].dtype == column.dtype and (self.device is not None or given[path].flags.writeable)
            for path, column in arrays.paths(self.columns)
        )

    def _extend_at_once(self, experience: Experience, count: int) -> None:
        """Every column in one piece, or two where the ring begins again."""
        kept = min(count, self.length)
        start = count - kept
        for piece in pieces((self.written + start) % self.length, kept, self.length):
            stop = start + piece.stop - piece.start
            arrays.assign(self.columns, piece, experience[start:stop])
            start = stop
        self.written += count

    def clear(self) -> None:
        """Empty the ring."""
        self.written = 0
        self.edited()

    def edited(self, newest: int | None = None) -> None:
        """Note that other code has changed columns: any rows, or the ``newest`` ones only."""
        self.edits += 1
        self.edited_from = 0 if newest is None else self.written - newest

    def lend(self, name: str) -> Column:
        """A column that other code may read and write as long as it holds the column or a view of it."""
        self.edited()
        return self.loans.lend(self.columns[name]) if self.device is None else self.columns[name]

    # --- reading ------------------------------------------------------------------------------------------------------

    def index(self, cells: Any) -> Array:
        """Cells as an index in the ring's library, on its device."""
        return arrays.place(cells, self.device)

    def take(self, cells: Array, name: str, key: str | None = None) -> Column:
        """Returns copies of one stored column at cells of any shape, or of one entry of its dicts: [*cells.shape,
        ...]"""
        if self.records is not None:
            column = self.records.cells[name] if key is None else self.records.cells[name][key]
            return column[cells] if type(column) is np.ndarray else arrays.mapped(lambda array: array[cells], column)
        column = self.columns[name] if key is None else self.columns[name][key]
        return arrays.mapped(lambda array: array[cells // self.n_envs, cells % self.n_envs], column)

    def at(self, cells: Array) -> Experience:
        """The rows of some cells [B] or [B, L]: copies."""
        return Experience(self.read(cells))

    def read(self, cells: Any, shared: bool = False) -> dict[str, Column]:
        """The columns of :meth:`at`; ``shared``: copies that may overlap one another."""
        cells = self.index(cells)
        flat = cells if cells.ndim == 1 else cells.reshape(-1)
        if self.records is not None:
            columns = self.records.take(flat)
        else:
            columns = {name: self.take(flat, name) for name in self.columns}
        return columns if flat is cells else shaped(columns, cells)

    def successors(self, cells: Any, key: str | None = None) -> Column:
        """The true successors of some cells of any shape, or one entry of these dicts: [*cells.shape, ...] copies."""
        cells = self.index(cells)
        flat = cells.reshape(-1)
        if key is None and self.records is not None:
            return shaped(self.records.take(flat, "next_observations"), cells)
        return shaped(self.take(flat, "next_observations", key), cells)

    @property
    def tensors(self) -> dict[str, Any] | None:
        """Whole rows as tensors [length * n_envs, ...] of the same memory; ``None``: they are not stored so."""
        return None if self.records is None else self.records.tensors

    def all(self) -> Experience:
        """[T, n_envs, ...], oldest first: views of the columns where nothing has to be put in order."""
        if self.written <= self.length:
            return Experience(self.columns)[: self.written]
        return self.copies()

    def copies(self) -> Experience:
        """Copies of all rows [T, n_envs, ...], oldest first."""
        rows = (self.oldest + np.arange(self.filled)) % self.length
        return self.at(rows[:, None] * self.n_envs + np.arange(self.n_envs))

    # --- keeping ------------------------------------------------------------------------------------------------------

    def rows_state(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns arrays in main memory with some rows [K], by the paths of their columns, for files."""
        return {path: arrays.place(column[rows], None) for path, column in arrays.paths(self.columns)}

    def load_rows(self, state: Mapping[str, np.ndarray], saved: np.ndarray, rows: np.ndarray) -> None:
        """Put those ``saved`` [K] of a :meth:`rows_state` into ``rows`` [K]. How many were written is not changed."""
        for path, column in arrays.paths(self.columns):
            arrays.assign(column, rows, state[path][saved])
        self.edited()


def pieces(first: int, count: int, length: int) -> Iterator[slice]:
    """Slices that cover ``count`` places of a ring of ``length``, from ``first`` on."""
    end = first + count
    if count and end <= length:
        yield slice(first, end)
    elif count:
        yield slice(first, length)
        yield slice(0, end - length)


def shaped(column: Column, cells: Array) -> Column:
    """Values [B * L, ...] of cells [B, L] as [B, L, ...]; of cells [B] as they are."""
    if cells.ndim == 1:
        return column
    return arrays.mapped(lambda array: array.reshape(*cells.shape, *array.shape[1:]), column)


class Records:
    """``length * n_envs`` records. A *cell* is the place of a record: ``row * n_envs + env``.

    Args:
        dtype: of a record, as :func:`record_dtype` makes it.
        length, n_envs: how many.
        device: where they are; ``None``: in numpy.
        on_disk: in a temporary file, with ``device=None``.

    Attributes:
        columns: field -> view [length, n_envs, ...], or a dict of such views.
        cells: the same views as [length * n_envs, ...].
        bytes: the same memory as a tensor [length * n_envs, bytes of a record].
    """

    def __init__(self, dtype: np.dtype, length: int, n_envs: int, device: Device = None, on_disk: bool = False) -> None:
        self.dtype, self.length, self.n_envs, self.device = dtype, length, n_envs, device
        count = length * n_envs
        if device is None:
            self.rows = zeros(count, dtype, on_disk)
            self.bytes = torch.from_numpy(self.rows.view(np.uint8).reshape(count, dtype.itemsize))
            self.columns, self.cells = unpack(self.rows.reshape(length, n_envs)), unpack(self.rows)
        elif on_disk:
            raise ValueError(f"on_disk=True keeps records in a file, not on device={str(device)!r}: leave one out.")
        else:
            self.bytes = torch.zeros(count, dtype.itemsize, dtype=torch.uint8, device=device)
            self.columns = _fields(self.bytes, dtype, 0, (length, n_envs))
            self.cells = _fields(self.bytes, dtype, 0, (count,))

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return self.bytes.nbytes

    @cached_property
    def tensors(self) -> dict[str, Column] | None:
        """:attr:`cells` as tensors of the same memory; ``None`` if torch does not support one of their dtypes."""
        try:
            return arrays.mapped(torch.as_tensor, self.cells)
        except (TypeError, ValueError):
            return None

    def take(self, cells: Array, name: str | None = None) -> Column:
        """Returns copies of the records at some cells [B] int64, or of one of their fields: field -> [B, ...]."""
        if self.device is None:
            rows = self.take_rows(cells)
            return unpack(rows if name is None else rows[name])
        dtype, offset = (self.dtype, 0) if name is None else self.dtype.fields[name][:2]  # type: ignore[index]
        return _gathered(self.bytes, dtype, offset, cells)

    def take_rows(self, cells: np.ndarray) -> np.ndarray:
        """Copies of records in main memory: [B]."""
        if self.dtype.itemsize < LARGE_ROW:
            return self.rows.take(cells)
        gathered = torch.index_select(self.bytes, 0, torch.from_numpy(cells))
        return gathered.numpy().view(self.dtype).reshape(len(cells))


def unpack(field: np.ndarray) -> Any:
    """A field of records as nested dicts of arrays; any other array as it is. Views, nothing is copied."""
    names = field.dtype.names
    return field if names is None else {n: unpack(p) if p.dtype.names else p for n in names for p in (field[n],)}


def _fields(block: Tensor, dtype: np.dtype, offset: int, lead: tuple[int, ...]) -> Column:
    """Typed views of bytes [count, bytes of a record]."""
    if dtype.fields is not None:
        parts = {name: (kind, offset + start) for name, (kind, start, *_) in dtype.fields.items()}
        return {name: _fields(block, kind, start, lead) for name, (kind, start) in parts.items()}
    kind = arrays.torch_dtype(dtype)
    return block[:, offset : offset + dtype.itemsize].view(kind).view(*lead, *dtype.shape)


def _gathered(block: Tensor, dtype: np.dtype, offset: int, cells: Tensor) -> Column:
    """Fields of some records, in the widest words that fit: single bytes are slow, and torch gathers not every type."""
    if dtype.fields is not None:
        parts = {name: (kind, offset + start) for name, (kind, start, *_) in dtype.fields.items()}
        return {name: _gathered(block, kind, start, cells) for name, (kind, start) in parts.items()}
    word = gcd(block.shape[1], offset, dtype.itemsize, 8)
    words = block[:, offset : offset + dtype.itemsize].view(WORDS[word])
    kind = arrays.torch_dtype(dtype)
    return words.index_select(0, cells).view(kind).reshape(len(cells), *dtype.shape)


class Loans:
    """Arrays that other code may read and write as long as it holds them or a view of them."""

    def __init__(self) -> None:
        self._loans: WeakSet[_Loan] = WeakSet()

    def __bool__(self) -> bool:
        """Whether an array that was lent, or a view of one, still exists."""
        return len(self._loans) > 0

    def lend(self, column: Column) -> Column:
        """Returns the same memory as arrays whose lifetime is tracked."""
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
