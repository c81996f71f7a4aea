"""Tsallis entropies, and the sparse policies that are optimal under them.

Tsallis 1988, "Possible generalization of Boltzmann-Gibbs statistics", J. Stat. Phys. 52; in reinforcement learning Lee,
Choi and Oh 2018, arXiv:1709.06293, and Lee et al. 2019, arXiv:1902.00137, whose definition is used here:

    S_q(p) = -E[ln_q p],  ln_q x = (x^(q - 1) - 1) / (q - 1)

S_1 is Shannon's entropy, the limit. S_2 = 1 - sum p^2, twice what arXiv:1709.06293 calls W: the policy that maximises
E[Q] + alpha S_2 is ``sparsemax(Q / (2 alpha))``, as ``softmax(Q / alpha)`` maximises E[Q] + alpha S_1.

Shapes: B rows, N classes, A independent parts of an action.
"""

import math

import torch
from torch import Tensor


def sparsemax(z: Tensor) -> Tensor:
    """The point of the probability simplex nearest to z: p = max(z - tau, 0) with sum p = 1.

    Martins and Astudillo 2016, arXiv:1602.02068, algorithm 1. The support S is found by sorting; autograd through the
    remaining operations gives the paper's Jacobian, eq. 9: diag(s) - s s^T / |S|, where s is 1 on S and 0 elsewhere.

    Args:
        z: [..., N]; -inf forbids a class.
    Returns:
        probabilities [..., N], exactly 0 outside of S.
    """
    z = z - z.detach().amax(-1, keepdim=True)  # changes the result only by rounding
    with torch.no_grad():
        falling = z.sort(-1, descending=True).values
        count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
        size = (1 + count * falling > falling.cumsum(-1)).sum(-1, keepdim=True)
        support = z >= falling.gather(-1, size - 1)
    tau = (torch.where(support, z, 0.0).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
    return (z - tau).clamp(min=0)


def tsallis_entropy(probs: Tensor, q: float) -> Tensor:
    """S_q of probabilities: Shannon's entropy for q = 1, 1 - sum p^2 for q = 2; classes of probability 0 contribute 0.

    Args:
        probs: [..., N].
        q: index, positive.
    Returns:
        entropies [...].
    """
    logs = torch.where(probs > 0, probs, 1.0).log()
    surprise = -logs if q == 1 else torch.expm1((q - 1) * logs) / (1 - q)  # -ln_q p, also precise for q close to 1
    return (probs * surprise).sum(-1)


def joint_tsallis_entropy(entropies: Tensor, q: float) -> Tensor:
    """S_q of independent parts together, from the entropy of each: S(a, b) = S(a) + S(b) + (1 - q) S(a) S(b).

    entropies [B, A] -> [B]
    """
    if q == 1:
        return entropies.sum(-1)
    nearly = torch.finfo(entropies.dtype).eps - 1  # smallest product after rounding, for a wide Gaussian
    return torch.expm1(torch.log1p(((1 - q) * entropies).clamp_min(nearly)).sum(-1)) / (1 - q)


def gaussian_tsallis_entropy(log_std: Tensor, q: float) -> Tensor:
    """S_q of independent Gaussians together, by the integral of N(x; 0, s)^q = (2 pi s^2)^((1 - q) / 2) / sqrt(q).

    It decreases without bound with the standard deviations if q > 1, and never exceeds 1 / (q - 1). log_std [B, A] ->
    [B]
    """
    half_log_2pi = 0.5 * math.log(2 * math.pi)
    if q == 1:
        return (log_std + (0.5 + half_log_2pi)).sum(-1)
    log_integrals = (1 - q) * (log_std + half_log_2pi) - 0.5 * math.log(q)
    return torch.expm1(log_integrals.sum(-1)) / (1 - q)
