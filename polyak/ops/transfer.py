"""From main memory to a device."""

import torch
from torch import Tensor


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
