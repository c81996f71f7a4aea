"""The placement of a replay buffer's rows: memory checks, and the device on which batches are gathered."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from polyak.experience.compact import CompactRing
from polyak.experience.memory import GIGABYTE, InsufficientMemoryError, check_memory
from polyak.experience.mirror import Mirror, mirror_of
from polyak.experience.ring import Ring

SHARE = 0.5  # of a GPU's free memory, which "auto" may take
UPLOADS_PER_ROW = 4  # rows that may be uploaded for each row that is drawn: in one piece they are cheaper than a gather


def check_size(layout: np.dtype, cells: int, compact: bool, observation_space: spaces.Space) -> None:
    """Refuse a ring of so many cells that would not fit into the memory that is free, and name the ways out.

    Raises:
        InsufficientMemoryError: it would not.
    """
    compacted = CompactRing.size_of(layout, cells)
    needed = compacted if compact else Ring.size_of(layout, cells)
    ways = [
        f"a smaller buffer_size ({GIGABYTE / needed * cells:,.0f} transitions take 1 GB)",
        f"optimize_memory_usage=True ({compacted / GIGABYTE:.2f} GB)",
        "smaller observations (uint8 images, fewer pixels, float32)",
        "storage_device='disk' (a temporary file)",
    ]
    if compact:
        del ways[1]
    what = f"The replay buffer (buffer_size={cells:,} transitions of {observation_space})"
    check_memory(needed, what, f"Ways out: {'; '.join(ways)}.")


class Placement:
    """Keeps a :class:`~polyak.experience.mirror.Mirror` of a ring if one is chosen.

    A mirror allocates its memory at the first use, or at once if its device was given by name. Pickles and copies leave
    it out.

    Args:
        choice: "cpu": main memory only. A device: also on that device, which must be that of the batches. "auto": also
            on the device of the batches, if it is a GPU and at most half of its free memory is needed.
        device: device of the batches.
        obstacle: the reason why batches must be made in main memory, if there is one.

    Raises:
        ValueError: the device by that name does not exist or gets no batches, or there is an obstacle.
    """

    declined: torch.device | None = None
    """A device for which it is decided that there is no mirror."""
    _mirror: Mirror | None = None
    _made_for: tuple[torch.device, int] | None = None

    def __init__(self, choice: torch.device | str, device: torch.device, obstacle: str | None = None):
        self.asked = choice != "auto" and _parse(choice).type != "cpu"
        self.never = not self.asked and (choice != "auto" or obstacle is not None)
        self._missed = 0  # rows drawn in main memory since the mirror was up to date
        if self.asked:
            _check(choice, device, obstacle)

    def source(self, ring: Ring, device: torch.device, rows: int) -> Ring:
        """Returns the ring or mirror from which the next batch is gathered.

        Args:
            ring: the ring in main memory.
            device: device of the batches.
            rows: number of rows in the batch.
        """
        mirror = None if self.never else self.mirror(ring, device)
        if mirror is None or ring.loans:  # a view that still exists may be written into
            return ring
        self._missed += rows
        if mirror.stale() > UPLOADS_PER_ROW * self._missed:
            return ring
        self._missed = 0
        mirror.update()
        return mirror

    def mirror(self, ring: Ring, device: torch.device) -> Mirror | None:
        """Returns the mirror, or ``None``; decided once for a device and a size of the ring.

        Raises:
            InsufficientMemoryError: its device was given by name, and has too little free memory.
        """
        needed = device, ring.nbytes
        if self._made_for != needed:
            self._mirror = None  # gives its memory back before more is taken
            self._mirror = mirror_of(ring, device) if self._affordable(*needed) else None
            self._made_for = needed
            self.declined = device if self._mirror is None else None
        return self._mirror

    def _affordable(self, device: torch.device, needed: int) -> bool:
        if not self.asked:
            return device.type == "cuda" and needed <= SHARE * free_memory(device)
        if device.type == "cuda" and needed > (free := free_memory(device)):
            raise InsufficientMemoryError(
                f"storage_device={str(device)!r}: the replay buffer's rows take {needed / GIGABYTE:.2f} GB and "
                f"{free / GIGABYTE:.2f} GB of the device's memory is free. Ways out: a smaller buffer_size; "
                "optimize_memory_usage=True; storage_device='cpu'."
            )
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("declined", "_mirror", "_made_for")}


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that torch can still use: those that are free, and those that it keeps for later."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _parse(choice: torch.device | str) -> torch.device:
    try:
        return torch.device(choice)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"storage_device must be 'auto', 'cpu', 'disk' or a device, got {choice!r}.") from error


def _check(choice: torch.device | str, device: torch.device, obstacle: str | None) -> None:
    """Refuse a chosen device that cannot be used."""
    wanted, otherwise = _parse(choice), "Use storage_device='auto' or 'cpu'."
    elsewhere = None not in (wanted.index, device.index) and wanted.index != device.index
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"storage_device={str(choice)!r}: torch finds no CUDA device here. {otherwise}")
    if wanted.type != device.type or elsewhere:
        raise ValueError(
            f"storage_device={str(choice)!r} must be the device that batches go to, device={str(device)!r}. {otherwise}"
        )
    if obstacle is not None:
        raise ValueError(f"storage_device={str(choice)!r} would not be used: {obstacle}. {otherwise}")
