"""Initial weights of networks."""

import torch
from torch import Tensor, nn


def orthogonal_(weight: Tensor, gain: float = 1) -> None:
    """Fills a weight in place with a random orthogonal matrix, scaled by ``gain`` (Saxe et al. 2014).

    One thread computes it: the QR decomposition differs in its last bits between numbers of threads, and equal seeds
    give equal networks on any number of cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        nn.init.orthogonal_(weight, gain=gain)
    finally:
        torch.set_num_threads(threads)
