"""A storage's rows on a device as well, so that minibatches are gathered where they are learned from.

Main memory stays the truth, and knows nothing of its mirrors: before a mirror is read it asks the storage what was
written since the last time, and uploads that in one piece, or two where the ring begins anew. It is read as the storage
is, and returns the same bits as tensors: everything that follows is the same for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.data.batch import TensorObs
from polyak.data.storage.frames import FrameStack
from polyak.data.storage.storage import SingleStorage, Storage
from polyak.experience.records import Records
from polyak.ops.transfer import to_device

LARGEST_PINNED = 16 << 20  # bytes that are uploaded without waiting: page-locked memory is scarce, and is kept by torch


class Mirror:
    """The rows of a :class:`~polyak.data.storage.storage.Storage` on a device.

    Args:
        storage: of which both observations of a transition lie in one record.
        device: takes all memory that the full ring needs at once.
    """

    def __init__(self, storage: Storage, device: torch.device):
        self.storage, self.device = storage, device
        self._rows = DeviceRows(storage, device)

    def stale(self, filled: int) -> int:
        """How many rows of the first ``filled`` slots the next :meth:`update` uploads."""
        return self._rows.stale(filled)[1] * self.storage.envs

    def update(self, filled: int) -> None:
        """Take over what was written into the first ``filled`` slots of the ring, beyond which nothing is read."""
        self._rows.update(filled)

    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Any]:
        """Whole transitions, as :meth:`Storage.read` gives them: field -> [B, ...] tensors of their own."""
        return self._rows.take(self._upload(cells))

    def next_observations(self, cells: np.ndarray) -> Any:
        """Successors [B, ...] of the rows in ``cells``."""
        return self._rows.take(self._upload(cells), "next_observations")

    def _upload(self, array: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(array), self.device)


class SingleMirror(Mirror):
    """A :class:`Mirror` of a storage that keeps each observation, and each frame of stacked images, once."""

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
        rows = self._rows.take(places)
        successors = self._decode(self._successors(cells, places))
        return {**rows, "observations": self._decode(rows["observations"]), "next_observations": successors}

    def next_observations(self, cells: np.ndarray) -> Any:
        return self._decode(self._successors(cells, self._upload(cells)))

    def _successors(self, cells: np.ndarray, places: Tensor) -> TensorObs:
        """Stored form of the next observations of the rows in ``cells``, whose numbers the device has in ``places``."""
        found = self._rows.take((places + self.storage.envs) % len(self.storage.records.rows), "observations")
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


class DeviceRows:
    """The rows of a storage on a device."""

    def __init__(self, storage: Storage, device: torch.device):
        self._storage, self._seen = storage, 0
        self.records = Records(storage.records.dtype, storage.steps, storage.envs, device)
        self.take = self.records.take

    def stale(self, filled: int) -> tuple[int, int]:
        """The slots to upload: where they begin in the ring, and how many; of those before ``filled``."""
        first, count = self._storage.changes.since(self._seen)
        return (0, filled) if count == self._storage.steps else (first, count)

    def update(self, filled: int) -> None:
        """Upload what was written into the first ``filled`` slots."""
        envs = self._storage.envs
        for piece in pieces(*self.stale(filled), self._storage.steps):
            rows = slice(piece.start * envs, piece.stop * envs)
            upload(self._storage.records.bytes[rows], self.records.bytes[rows])
        self._seen = self._storage.changes.count


class DevicePlanes:
    """The planes of a :class:`~polyak.data.storage.frames.FrameStack` on a device."""

    def __init__(self, stack: FrameStack, device: torch.device):
        self._stack, self._seen = stack, 0
        plane = np.dtype([("plane", np.uint8, tuple(stack.plane_shape))])
        self._planes = Records(plane, len(stack.planes), 1, device)

    def update(self) -> None:
        """Upload the planes that came since the last time and are still in use."""
        stack = self._stack
        count = min(stack.appended - self._seen, stack.head - stack.tail)
        for piece in pieces((stack.head - count) % stack.capacity, count, stack.capacity):
            places = slice(piece.start + 1, piece.stop + 1)  # the first plane is the empty one
            upload(stack.planes[places], self._planes.bytes[places])
        self._seen = stack.appended

    def frames(self, numbers: Tensor) -> Tensor:
        """Numbers [B, C] -> images [B, C, H, W]."""
        places = (numbers % self._stack.capacity + 1).masked_fill_(numbers < 0, 0)
        return self._planes.take(places.reshape(-1), "plane").unflatten(0, numbers.shape)  # type: ignore[no-any-return]


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
