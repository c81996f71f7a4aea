"""From main memory to a device."""

import numpy as np
import torch
from torch import Tensor


def shared(array: np.ndarray) -> Tensor:
    """A tensor of the same memory, to be read only where the array can only be read, as those of other processes."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    try:
        return torch.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError):  # of older libraries, or a type that they do not share
        return torch.from_numpy(array.copy())


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, contiguous if it has to be copied to a GPU; itself if it is there already.

    A copy to a GPU goes through page-locked memory, so that neither the host waits for it nor it for what the GPU still
    has to do. Torch keeps that memory until the copy is made: ``tensor`` may be overwritten at once.

    Args:
        tensor: of any shape.
        device: where to.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        # torch would copy one with gaps through memory that is not page-locked, and wait
        return tensor.contiguous().pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
