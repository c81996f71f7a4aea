"""From main memory to a device."""

import math

import numpy as np
import torch
from torch import Tensor

_ALIGNED = 64
"""Bytes at a multiple of which torch's own tensors begin. Matrix products round otherwise at other places."""


def shared(array: np.ndarray) -> Tensor:
    """A tensor of the same memory, to be read only where the array can only be read, as those of other processes. These
    are copied where they begin at another place than tensors do, as small ones may."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    if array.ctypes.data % _ALIGNED == 0:
        try:
            return torch.from_dlpack(array)
        except (BufferError, TypeError, RuntimeError):  # of older libraries, or a type that they do not share
            pass
    own = aligned(array.shape, array.dtype)
    own[...] = array
    return torch.from_numpy(own)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that begin where a tensor would."""
    size = dtype.itemsize * math.prod(shape)
    if dtype.hasobject or size == 0:
        return np.zeros(shape, dtype)
    return torch.zeros(size, dtype=torch.uint8).numpy().view(dtype).reshape(shape)


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
