"""A storage's rows on a device as well, so that minibatches are gathered where they are learned from.

Main memory stays the truth, and knows nothing of its mirrors: before a mirror is read it asks the storage what was
written since the last time, and uploads that in one piece, or two where the ring begins anew. It is read as the storage
is, and returns the same bits as tensors: everything that follows is the same for both.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor

from polyak.data.batch import TensorObs
from polyak.data.storage.frames import FrameStack
from polyak.data.storage.storage import SingleStorage, Storage
from polyak.data.storage.table import Table
from polyak.ops.transfer import to_device

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LARGEST_PINNED = 16 << 20  # bytes that are uploaded without waiting: page-locked memory is scarce, and is kept by torch

Fields = Union["Field", "dict[str, Fields]"]
"""A field of records, or the fields of a field that is a record itself."""


class Mirror:
    """The rows of a :class:`~polyak.data.storage.storage.Storage` on a device.

    Args:
        storage: of which both observations of a transition lie in one record.
        device: takes all memory that the full ring needs at once.
    """

    def __init__(self, storage: Storage, device: torch.device):
        self.storage, self.device = storage, device
        self._table = DeviceTable(storage.table, device)

    def stale(self, filled: int) -> int:
        """How many rows of the first ``filled`` slots the next :meth:`update` uploads."""
        return self._table.stale(filled)[1] * self.storage.envs

    def update(self, filled: int) -> None:
        """Take over what was written into the first ``filled`` slots of the ring, beyond which nothing is read."""
        self._table.update(filled)

    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Any]:
        """Whole transitions, as :meth:`Storage.read` gives them: field -> [B, ...] tensors of their own."""
        return self._table.take(self._upload(cells))

    def next_observations(self, cells: np.ndarray) -> Any:
        """Successors [B, ...] of the rows in ``cells``."""
        return self._table.take(self._upload(cells), "next_observations")

    def _upload(self, array: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(array), self.device)


class SingleMirror(Mirror):
    """A :class:`Mirror` of a storage that keeps each observation, and each frame of stacked pictures, once."""

    storage: SingleStorage

    def __init__(self, storage: SingleStorage, device: torch.device):
        super().__init__(storage, device)
        self._planes = {key: DevicePlanes(stack, device) for key, stack in storage.stacks.items()}

    def update(self, filled: int) -> None:
        super().update(filled)
        for planes in self._planes.values():
            planes.update()

    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Any]:
        places = self._upload(cells)
        rows = self._table.take(places)
        successors = self._decode(self._successors(cells, places))
        return {**rows, "observations": self._decode(rows["observations"]), "next_observations": successors}

    def next_observations(self, cells: np.ndarray) -> Any:
        return self._decode(self._successors(cells, self._upload(cells)))

    def _successors(self, cells: np.ndarray, places: Tensor) -> TensorObs:
        """Stored form of the next observations of the rows in ``cells``, whose numbers the device has in ``places``."""
        found = self._table.take((places + self.storage.envs) % len(self.storage.table.rows), "observations")
        exceptions, values = self.storage.exceptions(cells)
        if exceptions.size:  # the ends of episodes: few enough to be brought with each batch
            at = self._upload(exceptions)
            if isinstance(found, dict):
                for key, rows in found.items():
                    self._put(rows, at, values[key])
            else:
                self._put(found, at, values)
        return found

    def _put(self, rows: Tensor, at: Tensor, values: np.ndarray) -> None:
        """``rows[at] = values`` for contiguous rows, by bytes: torch cannot copy every type by index."""
        packed = np.array(values, order="C").reshape(len(values), -1).view(np.uint8)
        rows.reshape(len(rows), -1).view(torch.uint8).index_copy_(0, at, self._upload(packed))

    def _decode(self, stored: TensorObs) -> TensorObs:
        """Stored form -> observations [B, ...]."""
        if isinstance(stored, dict):
            return {key: self._planes[key].frames(a) if key in self._planes else a for key, a in stored.items()}
        return self._planes[None].frames(stored) if self._planes else stored


class DeviceTable:
    """The records of a :class:`~polyak.data.storage.table.Table` on a device."""

    def __init__(self, table: Table, device: torch.device):
        self._table, self._seen = table, 0
        self._rows = torch.zeros_like(table.bytes, device=device)
        self._fields = _fields_of(self._rows, table.dtype)

    def stale(self, filled: int) -> tuple[int, int]:
        """The slots to upload: where they begin in the ring, and how many; of those before ``filled``."""
        first, count = self._table.changed_since(self._seen)
        return (0, filled) if count == self._table.steps else (first, count)

    def update(self, filled: int) -> None:
        """Upload what was written into the first ``filled`` slots."""
        envs = self._table.envs
        for piece in pieces(*self.stale(filled), self._table.steps):
            rows = slice(piece.start * envs, piece.stop * envs)
            upload(self._table.bytes[rows], self._rows[rows])
        self._seen = self._table.changes

    def take(self, cells: Tensor, name: str | None = None) -> Any:
        """The records in some cells [B], or one field of them: [B, ...] by name."""
        return _take(self._fields if name is None else self._fields[name], cells)  # type: ignore[index]


class DevicePlanes:
    """The planes of a :class:`~polyak.data.storage.frames.FrameStack` on a device."""

    def __init__(self, stack: FrameStack, device: torch.device):
        self._stack, self._seen = stack, 0
        self._planes = torch.zeros_like(stack.planes, device=device)
        self._field = Field(self._planes, 0, np.dtype((np.uint8, tuple(stack.plane_shape))))

    def update(self) -> None:
        """Upload the planes that came since the last time and are still in use."""
        stack = self._stack
        count = min(stack.appended - self._seen, stack.head - stack.tail)
        for piece in pieces((stack.head - count) % stack.capacity, count, stack.capacity):
            places = slice(piece.start + 1, piece.stop + 1)  # the first plane is the empty one
            upload(stack.planes[places], self._planes[places])
        self._seen = stack.appended

    def frames(self, numbers: Tensor) -> Tensor:
        """Numbers [B, C] -> pictures [B, C, H, W]."""
        places = (numbers % self._stack.capacity + 1).masked_fill_(numbers < 0, 0)
        return self._field.take(places.reshape(-1)).unflatten(0, numbers.shape)


class Field:
    """One field of records, gathered in the widest words that fit: bytes are slow, and torch cannot gather every type.

    Args:
        rows: the records as bytes, [N, bytes].
        offset: of the field.
        dtype: a subarray, or a single number.
    """

    def __init__(self, rows: Tensor, offset: int, dtype: np.dtype):
        word = gcd(rows.shape[1], offset, dtype.itemsize, 8)
        self._words = rows[:, offset : offset + dtype.itemsize].view(WORDS[word])
        self._dtype, self._shape = torch.from_numpy(np.empty(0, dtype.base)).dtype, dtype.shape

    def take(self, cells: Tensor) -> Tensor:
        """The values in some cells: [B] -> [B, ...], contiguous."""
        return self._words.index_select(0, cells).view(self._dtype).reshape(len(cells), *self._shape)


def _fields_of(rows: Tensor, dtype: np.dtype, offset: int = 0) -> Fields:
    if dtype.names is None or dtype.fields is None:
        return Field(rows, offset, dtype)
    fields = {name: dtype.fields[name] for name in dtype.names}
    return {name: _fields_of(rows, kind, offset + start) for name, (kind, start, *_) in fields.items()}


def _take(columns: Fields, cells: Tensor) -> Any:
    if isinstance(columns, dict):
        return {name: _take(column, cells) for name, column in columns.items()}
    return columns.take(cells)


def pieces(first: int, count: int, size: int) -> list[slice]:
    """Slices that cover ``count`` places of a ring of ``size``, from ``first`` on."""
    if not count:
        return []
    end = first + count
    return [slice(first, end)] if end <= size else [slice(first, size), slice(0, end - size)]


def upload(source: Tensor, target: Tensor) -> None:
    """Copy main memory to a device, without waiting for it unless it is much."""
    target.copy_(source if source.nbytes > LARGEST_PINNED else to_device(source, target.device))


def mirror_of(storage: Storage, device: torch.device) -> Mirror:
    """The mirror that suits a storage."""
    return SingleMirror(storage, device) if isinstance(storage, SingleStorage) else Mirror(storage, device)
