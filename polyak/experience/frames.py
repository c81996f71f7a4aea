"""Stacked images without repetition: every frame is kept once.

An observation of k stacked frames shares k - 1 of them with its predecessor. :class:`FrameStack` keeps a ring of
single channels ("planes") and describes an observation by the numbers of its planes. Nothing is assumed about the
stack: a plane is shared only after its bytes were compared, and planes that can not be shared are stored again.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch

from polyak.arrays import aligned
from polyak.experience.memory import check_memory, zeros

Compression = Literal["lz4"]
"""The compression of images that are sent to another process."""

MOST_CHANNELS = 64
SLACK = 1.0625  # planes beyond one set per row, for first and final observations of episodes
TRIAL_ROWS = 256  # after so many rows the share of repeated planes is known
TRIAL_STEPS = 8
"""After so many steps of a chunk it is known whether images are stacks of frames."""


def find_stacks(observation: np.dtype) -> dict[str | None, np.dtype]:
    """Entries of an observation (None for one without keys) that may be stacks of channel-first uint8 images."""
    names = observation.names
    entries = {None: observation} if names is None else {name: observation[name] for name in names}
    return {key: dtype for key, dtype in entries.items() if _may_be_stack(dtype)}


def _may_be_stack(dtype: np.dtype) -> bool:
    if dtype.base != np.uint8 or len(dtype.shape) != 3:
        return False
    channels = dtype.shape[0]
    return 2 <= channels <= min(MOST_CHANNELS, *dtype.shape[1:])


class FrameStack:
    """Planes of one image entry of the observations of a ring [steps, envs].

    Planes are numbered in order of arrival; -1 is the empty plane, with which frame stacks are padded. Rows are removed
    in the order of their arrival, so the planes in use are always a contiguous range of numbers.

    Args:
        dtype: uint8 subarray [C, H, W].
        on_disk: keep the planes in a temporary file instead of in memory.

    Attributes:
        planes: [capacity + 1, H * W]; number n has its place at ``n % capacity + 1``, the empty plane at 0.
        head, tail: numbers in use are at least ``tail`` and less than ``head``.
        appended: number of planes ever added.
    """

    def __init__(self, dtype: np.dtype, steps: int, envs: int, on_disk: bool = False):
        self.channels, *self.plane_shape = dtype.shape
        self.on_disk = on_disk
        self.steps, self.envs = steps, envs
        self.shift = self._likely_shift(self.channels)
        self._shifts = [n for n in range(1, self.channels) if self.channels % n == 0]
        self.appended = 0
        self._allocate(self._expected(self.shift, self.channels, steps * envs))
        self.clear()

    @staticmethod
    def _likely_shift(channels: int) -> int:
        return 3 if channels % 3 == 0 else 1  # colour or grey

    @staticmethod
    def _expected(planes_per_row: float, channels: int, cells: int) -> int:
        return int(min(planes_per_row * SLACK, channels) * cells) + 4 * channels

    @classmethod
    def size_of(cls, dtype: np.dtype, cells: int) -> int:
        """Returns the expected number of bytes for this many observations, their plane numbers included."""
        channels, height, width = dtype.shape
        return cls._expected(cls._likely_shift(channels), channels, cells) * height * width + cells * channels * 8

    def clear(self) -> None:
        """Drop all planes."""
        self.head = self.tail = 0  # numbers in use: [tail, head)
        self._low = np.full(self.steps, -1, np.int64)  # smallest number that a slot needs
        self._rows = 0

    def make_room(self, slot: int) -> None:
        """Drop planes that only older slots use, before a slot is written."""
        oldest = self._low[slot] if self._low[slot] >= 0 else self._low[0]
        self.tail = int(oldest) if oldest >= 0 else self.head

    def note(self, slot: int, numbers: np.ndarray) -> None:
        """Record the planes that the slot's observations [envs, C] use."""
        self._low[slot] = np.where(numbers < 0, self.head, numbers).min()
        self._rows += self.envs
        if self._rows - self.envs < TRIAL_ROWS <= self._rows and self._projected() > self.capacity:
            self._resize(self._projected())

    def start(self, frames: np.ndarray) -> np.ndarray:
        """Number an observation [C, H, W] that follows nothing: [C]."""
        known = {bytes(frames[0].nbytes): -1}
        numbers = np.empty(self.channels, np.int64)
        for channel, plane in enumerate(frames):
            content = plane.tobytes()
            if content not in known:
                known[content] = int(self._append(plane[None])[0])
            numbers[channel] = known[content]
        return numbers

    def follow(self, frames: np.ndarray, previous: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Returns the plane numbers [C] of an observation [C, H, W] that follows ``previous``, whose planes have
        ``numbers``."""
        for shift in [self.shift, *self._shifts]:
            if shift < self.channels and np.array_equal(frames[:-shift], previous[shift:]):
                self.shift = shift
                return np.concatenate([numbers[shift:], self._append(frames[-shift:])])
        return self.start(frames)

    def frames(self, numbers: np.ndarray) -> np.ndarray:
        """Copies the frames with plane numbers [..., C] to images [..., C, H, W]."""
        places = self._places(numbers.reshape(-1))
        planes = torch.index_select(self.planes, 0, torch.from_numpy(places)).numpy()
        return planes.reshape(*numbers.shape, *self.plane_shape)

    def pairs(self, numbers: np.ndarray, successors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images [B, C, H, W] of two lots of numbers [B, C]; where they follow each other they share their frames."""
        shift = self.shift
        if (numbers[:, shift:] != successors[:, :-shift]).any():
            return self.frames(numbers), self.frames(successors)
        planes = self.frames(np.concatenate([numbers, successors[:, -shift:]], axis=1))
        return planes[:, :-shift], planes[:, shift:]

    def state_dict(self) -> np.ndarray:
        """Returns the planes in use, [head - tail, H, W]; numbers saved with them count from ``tail``."""
        return self.frames(np.arange(self.tail, self.head))

    def load_state_dict(self, planes: np.ndarray, slots: np.ndarray, numbers: np.ndarray) -> None:
        """Take planes back, and the numbers [K, envs, C] of the observations in ``slots`` [K], oldest first."""
        self.clear()
        self._append(planes)
        low = np.where(numbers < 0, self.head, numbers).min(axis=(1, 2))
        self._low[slots] = np.minimum.accumulate(low[::-1])[::-1]
        self._rows = len(slots) * self.envs

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        places = numbers % self.capacity + 1
        places[numbers < 0] = 0  # stays empty
        return places

    def _append(self, planes: np.ndarray) -> np.ndarray:
        if self.head + len(planes) - self.tail > self.capacity:
            self._resize(max(self._projected(), int(1.25 * (self.head + len(planes) - self.tail))))
        numbers = np.arange(self.head, self.head + len(planes))
        self.planes.numpy()[self._places(numbers)] = planes.reshape(len(planes), self.planes.shape[1])
        self.head += len(planes)
        self.appended += len(planes)
        return numbers

    def _projected(self) -> int:
        """Planes needed for a full ring if the episodes to come share as many as those seen."""
        if not self._rows:
            return 0
        rows = min(self._rows, self.steps * self.envs)
        return self._expected((self.head - self.tail) / rows, self.channels, self.steps * self.envs)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        # allocated by numpy, which requests large pages from the system: a random read then costs a fifth less
        self.planes = torch.from_numpy(zeros((capacity + 1, int(np.prod(self.plane_shape))), np.uint8, self.on_disk))

    def _resize(self, capacity: int) -> None:
        if not self.on_disk:
            check_memory(
                capacity * int(np.prod(self.plane_shape)),
                f"A replay buffer of {self.steps * self.envs} stacked images, which repeat fewer frames than expected,",
                "Use a smaller buffer_size or smaller images.",
            )
        planes, places = self.planes, self._places
        held = np.arange(self.tail, self.head)
        before = places(held)
        self._allocate(capacity)
        after = self._places(held)
        for start in range(0, len(held), 4096):
            part = slice(start, start + 4096)
            self.planes.numpy()[after[part]] = planes.numpy()[before[part]]


class SentImages:
    """Images [..., C, H, W] that come out of a pickle as an array. Frames that several of one pickle have travel once.

    Args:
        frames: [K, H, W], perhaps :class:`Compressed`.
        numbers: [..., C] the numbers of the frames.
    """

    def __init__(self, frames: Any, numbers: np.ndarray) -> None:
        self.frames, self.numbers = frames, numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _images, (self.frames, self.numbers)


class Compressed:
    """An array of bytes that is compressed in a pickle; unpickling returns the array, read-only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        packed = lz4().compress(np.ascontiguousarray(self.array), store_size=False)
        return _decompressed, (np.frombuffer(packed, np.uint8), self.array.shape)


def lz4() -> Any:
    """Imports the module for compression.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module("lz4.block")
    except ImportError as error:
        raise ImportError("compression='lz4' needs lz4: pip install 'polyak[scale]'") from error


def pair_as_sent(images: np.ndarray, successors: np.ndarray) -> list[Any]:
    """Returns stacked images and their successors in the form in which they are sent: frames that both have travel
    once. Others are returned unchanged, also if one of them does not follow as the rest do.

    Args:
        images, successors: [B, ...] each.
    """
    if images.ndim == 4 and _may_be_stack(np.dtype((images.dtype, images.shape[1:]))):
        rows, channels = images.shape[:2]
        for shift in (one for one in range(1, channels) if channels % one == 0):
            if np.array_equal(images[:, shift:], successors[:, :-shift]):
                frames = np.concatenate([images, successors[:, -shift:]], 1).reshape(-1, *images.shape[2:])
                numbers = np.arange(len(frames), dtype=np.int32).reshape(rows, -1)
                return [SentImages(frames, numbers[:, :channels]), SentImages(frames, numbers[:, shift:])]
    return [images, successors]


def _images(frames: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    found = aligned((*numbers.shape, *frames.shape[1:]), frames.dtype)
    np.take(frames, numbers, 0, found, "clip")
    return found


def _decompressed(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    content = lz4().decompress(packed, uncompressed_size=int(np.prod(shape)))
    return np.frombuffer(content, np.uint8).reshape(shape)


def as_sent(
    seen: np.ndarray,
    others: Sequence[np.ndarray] = (),
    after: Sequence[tuple[int, np.ndarray]] = (),
    compression: Compression | None = None,
) -> list[Any]:
    """Returns observations in the form in which they are sent to another process: stacked images with every frame once,
    others unchanged.

    Args:
        seen: [T, N, ...] successive observations of N environments.
        others: [K, ...] each, further observations that follow some of these.
        after: for each of these, the step and the environments [K] of their predecessors.
        compression: compression of bytes.

    Returns:
        ``seen`` and the others, as objects that unpickle to arrays.
    """
    compressed: Any = Compressed if compression else np.asarray
    plain = [compressed(each) if each.dtype == np.uint8 else each for each in (seen, *others)]
    dtype = np.dtype((seen.dtype, seen.shape[2:]))
    if not (seen.ndim == 5 and _may_be_stack(dtype)):
        return plain
    steps, envs, channels = seen.shape[:3]
    stack, numbers = FrameStack(dtype, steps, envs), np.empty((steps, envs, channels), np.int64)
    for env in range(envs):  # so that like frames are near each other, which compression needs
        numbers[0, env] = stack.start(seen[0, env])
        for step in range(1, steps):
            numbers[step, env] = stack.follow(seen[step, env], seen[step - 1, env], numbers[step - 1, env])
            if (env, step) == (0, TRIAL_STEPS) and 2 * stack.head > step * channels:
                return plain
    found: list[np.ndarray] = [numbers]
    for images, (step, rows) in zip(others, after, strict=True):
        own = [stack.follow(*each) for each in zip(images, seen[step, rows], numbers[step, rows], strict=True)]
        found.append(np.array(own, np.int64).reshape(-1, channels))
    first = min(int(each.min(initial=0)) for each in found)  # -1, if there is an empty plane
    planes = stack.planes.numpy()[first + 1 : stack.head + 1].reshape(-1, *stack.plane_shape)
    sent = compressed(planes)
    return [SentImages(sent, (each - first).astype(np.int32)) for each in found]
