"""All weights of a network as one array, which travels as one object."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def flat_weights(module: nn.Module) -> np.ndarray:
    """The state of a module, [bytes]."""
    parts = [tensor.detach().cpu().contiguous().reshape(-1) for tensor in module.state_dict().values()]
    return np.concatenate([part.numpy().view(np.uint8) for part in parts]) if parts else np.zeros(0, np.uint8)


@torch.no_grad()
def put_back(module: nn.Module, weights: np.ndarray) -> None:
    """Take what :func:`flat_weights` returned of a module with the same networks.

    Raises:
        ValueError: it is of others.
    """
    state = module.state_dict()
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if len(weights) != size:
        raise ValueError(f"weights of {len(weights)} bytes do not fit networks of {size}: they are of another module.")
    at = 0
    for tensor in state.values():
        until = at + tensor.numel() * tensor.element_size()
        own = torch.from_numpy(weights[at:until].copy()).view(tensor.dtype).reshape(tensor.shape)
        tensor.copy_(own)
        at = until
