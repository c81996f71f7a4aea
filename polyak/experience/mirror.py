"""A copy of a ring's rows on a device, so that minibatches are gathered on the learner's device.

The ring in main memory is authoritative and does not depend on its mirrors: before a mirror is read, it uploads the
rows written since the last time, in one piece, or two where the ring wraps around. It is read like the ring and returns
the same bits as tensors.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from polyak.arrays import to_device
from polyak.experience.batch import TensorObs
from polyak.experience.compact import CompactRing, ReadOnce
from polyak.experience.frames import FrameStack
from polyak.experience.ring import Records, Ring, pieces

LARGEST_PINNED = 16 << 20  # bytes that are uploaded without waiting: page-locked memory is scarce, and is kept by torch


class Mirror(Ring):
    """A ring on a device that follows one in main memory.

    Args:
        ring: a ring whose records hold both observations of a transition.
        device: the memory of the full ring is allocated on it at once.
    """

    def __init__(self, ring: Ring, device: torch.device):
        super().__init__(ring.layout, ring.length, ring.n_envs, device)
        self._ring, self._seen, self._edits = ring, 0, 0

    def _stale(self) -> tuple[int, int]:
        """The rows to upload: where they begin in the ring, and how many."""
        ring, first = self._ring, self._seen
        if ring.edits > self._edits:
            first = min(first, ring.edited_from) if ring.edits == self._edits + 1 else 0
        count = ring.written - first
        return (first % self.length, count) if 0 <= count < self.length else (0, ring.filled)

    def stale(self) -> int:
        """Returns the number of transitions that the next :meth:`update` uploads."""
        return self._stale()[1] * self.n_envs

    def update(self) -> None:
        """Upload the rows that were written since the last update."""
        ours, theirs = self.records, self._ring.records
        assert ours is not None
        assert theirs is not None
        for piece in pieces(*self._stale(), self.length):
            rows = slice(piece.start * self.n_envs, piece.stop * self.n_envs)
            upload(theirs.bytes[rows], ours.bytes[rows])
        self._seen, self._edits = self._ring.written, self._ring.edits


class CompactMirror(Mirror, ReadOnce):
    """A :class:`Mirror` of a ring that keeps each observation, and each frame of stacked images, once."""

    _ring: CompactRing

    def __init__(self, ring: CompactRing, device: torch.device):
        super().__init__(ring, device)
        self.stacks: dict[str | None, DeviceFrames] = {key: DeviceFrames(s, device) for key, s in ring.stacks.items()}

    def update(self) -> None:
        super().update()
        for frames in self.stacks.values():
            frames.update()

    def _successors(self, cells: np.ndarray, places: Tensor) -> TensorObs:
        found: TensorObs = self.records.take((places + self.n_envs) % (self.length * self.n_envs), "observations")
        exceptions, values = self._ring.exceptions(cells)
        if exceptions.size:  # the ends of episodes: few enough to be brought with each batch
            at = self.index(exceptions)
            if isinstance(found, dict):
                for key, rows in found.items():
                    self._put(rows, at, values[key])
            else:
                self._put(found, at, values)
        return found

    def _put(self, rows: Tensor, at: Tensor, values: np.ndarray) -> None:
        """``rows[at] = values`` for contiguous rows, by bytes: torch cannot copy every type by index."""
        packed = np.array(values, order="C").reshape(len(values), -1).view(np.uint8)
        rows.reshape(len(rows), -1).view(torch.uint8).index_copy_(0, at, self.index(packed))


class DeviceFrames:
    """The planes of a :class:`~polyak.experience.frames.FrameStack` on a device."""

    def __init__(self, stack: FrameStack, device: torch.device):
        self._stack, self._seen = stack, 0
        plane = np.dtype([("plane", np.uint8, tuple(stack.plane_shape))])
        self._planes = Records(plane, len(stack.planes), 1, device)

    def update(self) -> None:
        """Upload the planes that were added since the last update and are still in use."""
        stack = self._stack
        count = min(stack.appended - self._seen, stack.head - stack.tail)
        for piece in pieces((stack.head - count) % stack.capacity, count, stack.capacity):
            places = slice(piece.start + 1, piece.stop + 1)  # the first plane is the empty one
            upload(stack.planes[places], self._planes.bytes[places])
        self._seen = stack.appended

    def frames(self, numbers: Tensor) -> Tensor:
        """Numbers [B, C] -> images [B, C, H, W]."""
        places = (numbers % self._stack.capacity + 1).masked_fill_(numbers < 0, 0)
        return self._planes.take(places.reshape(-1), "plane").unflatten(0, numbers.shape)


def upload(source: Tensor, target: Tensor) -> None:
    """Copy main memory to a device, without waiting for it unless it is much."""
    target.copy_(source if source.nbytes > LARGEST_PINNED else to_device(source, target.device))


def mirror_of(ring: Ring, device: torch.device) -> Mirror:
    """The mirror that suits a ring."""
    return CompactMirror(ring, device) if isinstance(ring, CompactRing) else Mirror(ring, device)
