"""Where a replay buffer's batches are gathered: in main memory, or on the device that learns from them."""

from __future__ import annotations

from typing import Any

import torch

from polyak.data.storage.mirror import Mirror, mirror_of
from polyak.data.storage.storage import Storage
from polyak.experience.memory import GIGABYTE, InsufficientMemoryError

SHARE = 0.5  # of a GPU's free memory, which "auto" may take
UPLOADS_PER_ROW = 4  # rows that may be uploaded for each row that is drawn: in one piece they are cheaper than a gather


class Placement:
    """Keeps a :class:`~polyak.data.storage.mirror.Mirror` of a storage where that is wanted.

    A mirror takes its memory when it is first needed, or at once if it was asked for by name. Pickles and copies leave
    it out.

    Args:
        choice: "cpu": in main memory only. A device: there as well; it must be the one that batches go to. "auto":
            there as well if it is a GPU, at most half of whose free memory is needed.
        device: where batches go.
        obstacle: why batches must be made in main memory whatever is chosen, if so.

    Raises:
        ValueError: the device by that name does not exist or gets no batches, or there is an obstacle.
    """

    _mirror: Mirror | None = None
    _made_for: tuple[torch.device, int] | None = None

    def __init__(self, choice: torch.device | str, device: torch.device, obstacle: str | None = None):
        self.asked = choice != "auto" and _parse(choice).type != "cpu"
        self.never = not self.asked and (choice != "auto" or obstacle is not None)
        self._missed = 0  # rows drawn in main memory since the mirror was up to date
        if self.asked:
            _check(choice, device, obstacle)

    def source(self, storage: Storage, device: torch.device, filled: int, rows: int) -> Storage | Mirror:
        """What to gather the next batch from.

        Args:
            storage: the truth.
            device: where batches go.
            filled: slots of the ring that hold something.
            rows: how many will be drawn.
        """
        mirror = None if self.never else self.mirror(storage, device)
        if mirror is None or storage.loans:  # a view that still exists may be written into
            return storage
        self._missed += rows
        if mirror.stale(filled) > UPLOADS_PER_ROW * self._missed:
            return storage
        self._missed = 0
        mirror.update(filled)
        return mirror

    def mirror(self, storage: Storage, device: torch.device) -> Mirror | None:
        """The mirror, if there is to be one: decided once for a device and a size of the storage.

        Raises:
            InsufficientMemoryError: it was asked for by name, and the device's memory cannot take it.
        """
        needed = device, storage.nbytes
        if self._made_for != needed:
            self._mirror = None  # gives its memory back before more is taken
            self._mirror = mirror_of(storage, device) if self._affordable(*needed) else None
            self._made_for = needed
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
        return {key: value for key, value in vars(self).items() if key not in ("_mirror", "_made_for")}


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
    """Refuse a device that was asked for in vain."""
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
