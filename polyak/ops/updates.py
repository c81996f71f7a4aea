"""Target network updates."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def polyak_update(source: nn.Module, target: nn.Module, tau: Tensor | float) -> None:
    """Move ``target`` a fraction ``tau`` of the way to ``source``: target <- (1 - tau) target + tau source.

    Parameters are averaged (Polyak and Juditsky 1992; Lillicrap et al. 2016, arXiv:1509.02971, algorithm 1). Buffers
    such as batch-norm statistics are running averages themselves and are copied.

    Args:
        source: the network being trained.
        target: its target network, of the same structure; changed in place.
        tau: a number in [0, 1], or a 0-d tensor. 1 copies.
    """
    ours: list[Tensor] = list(source.parameters())
    theirs: list[Tensor] = list(target.parameters())
    if not isinstance(tau, Tensor):
        torch._foreach_lerp_(theirs, ours, float(tau))
    elif tau.device.type == "cpu":
        torch._foreach_lerp_(theirs, ours, [tau] * len(ours))
    else:  # as two fused kernels rather than one for each parameter
        steps = torch._foreach_sub(ours, theirs)
        torch._foreach_mul_(steps, tau)
        torch._foreach_add_(theirs, steps)
    for lagging, online in zip(target.buffers(), source.buffers(), strict=True):
        lagging.copy_(online)
