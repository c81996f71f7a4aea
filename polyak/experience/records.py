"""Rows of mixed types in one block of memory, so that a random batch is one gather.

A row is one record of a numpy structured type; a field is a strided view with the usual ``[length, n_envs, ...]``
shape. The same block can be in main memory, in a temporary file, or on a torch device, with the same bytes. Memory is
zeroed lazily by the operating system: an unused row costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.experience import arrays
from polyak.experience.arrays import Array, Column, Device
from polyak.experience.memory import zeros

LARGE_ROW = 8192  # bytes; above it torch's gather (threaded) beats numpy's
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def record_dtype(fields: Mapping[str, np.dtype]) -> np.dtype:
    """An aligned record; wide elements first, so that little is lost to padding."""
    names = sorted(fields, key=lambda name: -fields[name].alignment)
    return np.dtype({"names": names, "formats": [fields[name] for name in names]}, align=True)


def unpack(field: np.ndarray) -> Any:
    """A field of records as nested dicts of arrays; any other array as it is. Views, nothing is copied."""
    names = field.dtype.names
    return field if names is None else {name: unpack(field[name]) for name in names}


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
        """:attr:`cells` as tensors of the same memory; ``None``: torch lacks a type or a width of them."""
        try:
            return arrays.mapped(torch.as_tensor, self.cells)
        except (TypeError, ValueError):
            return None

    def take(self, cells: Array, name: str | None = None) -> Column:
        """Copies of the records in some cells [B] int64, or of one field of them: field -> [B, ...]."""
        if self.device is None:
            rows = self.take_rows(cells)
            if name is not None:
                return unpack(rows[name])
            return {
                field: rows[field] if array.__class__ is np.ndarray else unpack(rows[field])
                for field, array in self.cells.items()
            }
        dtype, offset = (self.dtype, 0) if name is None else self.dtype.fields[name][:2]  # type: ignore[index]
        return _gathered(self.bytes, dtype, offset, cells)

    def take_rows(self, cells: np.ndarray) -> np.ndarray:
        """Copies of records in main memory: [B]."""
        if self.dtype.itemsize < LARGE_ROW:
            return self.rows.take(cells)
        gathered = torch.index_select(self.bytes, 0, torch.from_numpy(cells))
        return gathered.numpy().view(self.dtype).reshape(len(cells))


def _fields(block: Tensor, dtype: np.dtype, offset: int, lead: tuple[int, ...]) -> Column:
    """Typed views of bytes [count, bytes of a record]."""
    if dtype.fields is not None:
        parts = {name: (kind, offset + start) for name, (kind, start, *_) in dtype.fields.items()}
        return {name: _fields(block, kind, start, lead) for name, (kind, start) in parts.items()}
    kind = torch.from_numpy(np.empty(0, dtype.base)).dtype
    return block[:, offset : offset + dtype.itemsize].view(kind).view(*lead, *dtype.shape)


def _gathered(block: Tensor, dtype: np.dtype, offset: int, cells: Tensor) -> Column:
    """Fields of some records, in the widest words that fit: single bytes are slow, and torch gathers not every type."""
    if dtype.fields is not None:
        parts = {name: (kind, offset + start) for name, (kind, start, *_) in dtype.fields.items()}
        return {name: _gathered(block, kind, start, cells) for name, (kind, start) in parts.items()}
    word = gcd(block.shape[1], offset, dtype.itemsize, 8)
    words = block[:, offset : offset + dtype.itemsize].view(WORDS[word])
    kind = torch.from_numpy(np.empty(0, dtype.base)).dtype
    return words.index_select(0, cells).view(kind).reshape(len(cells), *dtype.shape)
