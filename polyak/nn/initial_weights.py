"""Initial weights of networks."""

from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Linear | nn.Conv2d)


def orthogonal(layer: Layer, gain: float = 1) -> Layer:
    """Returns the layer with a random orthogonal weight, scaled by ``gain`` (Saxe et al. 2014), and a bias of zero.

    One thread computes it: the QR decomposition differs in its last bits between numbers of threads, and equal seeds
    give equal networks on any number of cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        nn.init.orthogonal_(layer.weight, gain=gain)
    finally:
        torch.set_num_threads(threads)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
