"""Return distributions: projection, and losses between them.

Shapes: B rows, K atoms of a categorical distribution, N and M quantiles. ``...`` are axes that broadcast.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def project(probs: Tensor, atoms: Tensor, support: Tensor) -> Tensor:
    """Projects a categorical distribution on other atoms to a fixed support, minimising Cramer's distance.

    Each atom divides its probability between its two neighbours in the support, in proportion to proximity; atoms
    beyond an end are clamped to it. Bellemare et al. 2017 (arXiv:1707.06887) eq. 7; Rowland et al. 2018,
    arXiv:1802.08163.

    Args:
        probs: [B, K] of the atoms.
        atoms: [B, K] their locations, such as ``rewards + discounts * support``.
        support: [K] evenly spaced and ascending.
    Returns:
        probabilities [B, K] of the support.
    """
    low, gap = support[0], support[1] - support[0]
    places = ((atoms - low) / gap).clamp(0, len(support) - 1)
    numbers = torch.arange(len(support), dtype=support.dtype, device=support.device)
    shares = (1 - (places[:, :, None] - numbers).abs()).clamp(min=0)
    return (probs[:, :, None] * shares).sum(1)


def clamped_share(target: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """Returns the mean probability that :func:`project` has clamped to an end of the support.

    Probability at an end counts if the image of that end, r + gamma z, is outside of the support.

    Args:
        target: [B, K] probabilities after projection.
        rewards, discounts: [B] each.
        support: [K] atoms.
    Returns:
        [] in [0, 1].
    """
    low, high = rewards + discounts * support[0] < support[0], rewards + discounts * support[-1] > support[-1]
    return (target[:, 0] * low + target[:, -1] * high).mean()


def midpoints(n: int, device: torch.device | str | None = None) -> Tensor:
    """Returns the levels [n] at which n quantiles approximate a distribution best: (i + 1/2) / n.

    Dabney et al. 2018 (arXiv:1710.10044) lemma 2.
    """
    return (torch.arange(n, device=device) + 0.5) / n


def quantile_huber_loss(quantiles: Tensor, targets: Tensor, levels: Tensor, kappa: float = 1.0) -> Tensor:
    """Returns the loss of quantiles against a distribution given by samples or quantiles.

    ``sum_i mean_j |tau_i - [u_ij < 0]| H(u_ij) / kappa`` with ``u_ij = targets_j - quantiles_i`` and Huber's function
    H, which is quadratic up to ``kappa``. Dabney et al. 2018 (arXiv:1710.10044) eq. 10; arXiv:1806.06923 eq. 3.

    Args:
        quantiles: [..., B, N].
        targets: [..., B, M]; no gradient should flow into them.
        levels: [N] or [..., B, N] in (0, 1), of the quantiles.
        kappa: at least 0; 0 gives the quantile regression loss ``|tau - [u < 0]| |u|``.
    Returns:
        loss [..., B].
    """
    if kappa > 0 and quantiles.device.type == "cpu" and not _traced(quantiles):
        return _loss_by_running_sums(quantiles, targets, levels, kappa)
    errors = targets[..., None, :] - quantiles[..., :, None]
    sizes = errors.abs()
    if kappa > 0:
        sizes = torch.where(sizes <= kappa, 0.5 * errors.square() / kappa, sizes - 0.5 * kappa)
    weights = (levels[..., None] - (errors.detach() < 0).to(errors.dtype)).abs()
    return (weights * sizes).mean(-1).sum(-1)


def _traced(tensor: Tensor) -> bool:
    """Whether the code is traced, with tensors of another type: compilers fuse pairwise operations, whose results are
    then never stored."""
    return torch.compiler.is_compiling() or type(tensor) is not Tensor


def _loss_by_running_sums(quantiles: Tensor, targets: Tensor, levels: Tensor, kappa: float) -> Tensor:
    """Returns the quantile Huber loss in O((N + M) log M): storing N M pairs in each operation is slow on a CPU.

    With ``s(x) = sum_j max(targets_j - x, 0)^2``, Huber's functions of a quantile's positive errors add up to ``(s(q) -
    s(q + kappa)) / 2``, those of its negative ones to ``(s(q - kappa) - s(q)) / 2 + kappa rest`` with ``rest = sum_j (q
    - kappa / 2 - targets_j)``. Sorted targets beyond x are contiguous, so that s follows from differences of running
    sums: in float64, since most of them cancels.
    """
    rows = torch.broadcast_shapes(quantiles.shape[:-1], targets.shape[:-1])
    q = quantiles.double().expand(*rows, -1)
    t = targets.double().sort(-1).values
    sums, squares = (pad(powers.cumsum(-1), (1, 0)).expand(*rows, -1) for powers in (t, t.square()))
    n, rising = t.shape[-1], t.expand(*rows, -1).contiguous()

    def s(x: Tensor) -> Tensor:
        first = torch.searchsorted(rising, x.detach().contiguous())
        total, total_square = (running[..., -1:] - running.gather(-1, first) for running in (sums, squares))
        return total_square - x * (2 * total - (n - first) * x)

    here = s(q)
    over = (here - s(q + kappa)) / (2 * kappa)
    rest = n * (q - kappa / 2) - sums[..., -1:]
    under = (s(q - kappa) - here) / (2 * kappa) + rest
    return ((levels * over + (1 - levels) * under).sum(-1) / n).to(quantiles.dtype)
