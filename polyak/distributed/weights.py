"""All weights of a network as one array, for sending them as one object."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def _tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """Returns the state of a module in the order of ``state_dict``, which takes three times as long, each tensor once:
    a module that is shared has several names there."""
    found: dict[int, torch.Tensor] = {}
    for part in module.modules():
        buffers = (each for name, each in part._buffers.items() if name not in part._non_persistent_buffers_set)
        found |= {id(each): each for each in (*part._parameters.values(), *buffers) if each is not None}
    return list(found.values())


def flat_weights(module: nn.Module) -> np.ndarray:
    """Returns the state of a module, [bytes]."""
    parts = [tensor.detach().cpu().contiguous().reshape(-1) for tensor in _tensors_of(module)]
    return np.concatenate([part.numpy().view(np.uint8) for part in parts]) if parts else np.zeros(0, np.uint8)


@torch.no_grad()
def put_back(module: nn.Module, weights: np.ndarray) -> None:
    """Load the result of :func:`flat_weights` for a module with the same networks.

    Raises:
        ValueError: the weights are of other networks.
    """
    tensors = _tensors_of(module)
    if len(weights) != (size := _size(tensors)):
        tensors = list(module.state_dict().values())  # files of earlier versions have one under each of its names
    if len(weights) != _size(tensors):
        raise ValueError(f"weights of {len(weights)} bytes do not fit networks of {size}: they are of another module.")
    at = 0
    for tensor in tensors:
        until = at + tensor.numel() * tensor.element_size()
        own = torch.from_numpy(weights[at:until].copy()).view(tensor.dtype).reshape(tensor.shape)
        tensor.copy_(own)
        at = until


def _size(tensors: list[torch.Tensor]) -> int:
    """Bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
