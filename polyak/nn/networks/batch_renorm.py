"""Batch renormalisation: batch normalisation whose outputs depend on the rest of the batch by noise only.

Ioffe 2017, "Batch Renormalization: Towards Reducing Minibatch Dependence in Batch-Normalized Models", arXiv:1702.03275.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from polyak.nn.errors import PolicyError


class BatchRenorm1d(nn.Module):
    """Normalises each of F features: [B, F] -> [B, F].

    In evaluation by the running mean and variance: ``y = scale (x - ra_mean) / sqrt(ra_var + eps) + bias``. In training
    by the batch's own mean m and variance v, corrected to agree with the running ones (algorithm 1): with
    ``r = sqrt(v + eps) / sqrt(ra_var + eps)``, kept in [1/3, 3], and ``d = (m - ra_mean) / sqrt(ra_var + eps)``, kept
    in [-5, 5], both taken as constants by the gradient,

        y = scale (x - m + d sqrt(v) / r) / sqrt(v / r^2 + eps) + bias,

    which is the paper's ``scale ((x - m) / sqrt(v) r + d) + bias`` but for the place of ``eps``. While r and d are
    within their bounds, this equals the result of evaluation. During the first ``warmup_steps`` batches, when the
    running statistics are inaccurate, r = 1 and d = 0: plain batch normalisation. Variances are unbiased ones.

    Args:
        num_features: F.
        eps: added to variances.
        momentum: weight of a batch in the running statistics, in [0, 1].
        affine: whether ``scale`` and ``bias`` are applied.
        warmup_steps: renormalise from the batch after so many more than one.

    Raises:
        PolicyError: an argument out of range.
    """

    rmax, dmax = 3.0, 5.0
    """Bounds of r and d, as the authors of CrossQ set them."""
    ra_mean: Tensor
    ra_var: Tensor
    steps: Tensor
    """[] int64, batches seen in training."""

    def __init__(
        self,
        num_features: int,
        eps: float = 0.001,
        momentum: float = 0.01,
        affine: bool = True,
        warmup_steps: int = 100_000,
    ) -> None:
        super().__init__()
        _check(eps > 0, f"the eps of batch renormalisation must be greater than 0, got {eps}.")
        _check(0 <= momentum <= 1, f"the momentum of batch renormalisation must be in [0, 1], got {momentum}.")
        _check(warmup_steps >= 0, f"warm-up of batch renormalisation must take 0 steps or more, got {warmup_steps}.")
        self.num_features, self.affine = num_features, affine
        self.eps, self.momentum, self.warmup_steps = eps, momentum, warmup_steps
        self.scale, self.bias = nn.Parameter(torch.ones(num_features)), nn.Parameter(torch.zeros(num_features))
        self.register_buffer("ra_mean", torch.zeros(num_features))
        self.register_buffer("ra_var", torch.ones(num_features))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """[B, F] -> [B, F]; in training the running statistics move.

        Raises:
            ValueError: another shape, or in training fewer than two rows, which have no variance.
        """
        if x.ndim != 2 or x.shape[1] != self.num_features or (self.training and len(x) < 2):
            rows = "at least 2" if self.training else "any number of"
            raise ValueError(f"{self} needs {rows} rows of {self.num_features} features, got shape {list(x.shape)}.")
        x = x.to(self.ra_mean.dtype)  # products may be in half precision, which is too coarse for variances
        mean, var = self._moments(x) if self.training else (self.ra_mean, self.ra_var)
        inverse = (var + self.eps).rsqrt()
        return torch.addcmul(self.bias, x - mean, self.scale * inverse) if self.affine else (x - mean) * inverse

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The batch's mean and variance [F], corrected; then the running ones are updated."""
        var, mean = torch.var_mean(x, 0)
        std = var.clamp_min(torch.finfo(var.dtype).tiny).sqrt()  # has a gradient where a feature is constant, too
        with torch.no_grad():
            running_std = (self.ra_var + self.eps).sqrt()
            r = ((var + self.eps).sqrt() / running_std).clamp(1 / self.rmax, self.rmax)
            d = ((mean - self.ra_mean) / running_std).clamp(-self.dmax, self.dmax)
            warm = self.steps > self.warmup_steps  # a tensor, so that one program covers the warm-up and the time after
            r, d = torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)
            self.ra_mean.lerp_(mean, self.momentum)
            self.ra_var.lerp_(var, self.momentum)
            self.steps.add_(1)
        return mean - d * std / r, var / r**2

    def extra_repr(self) -> str:
        """Names and values of the arguments."""
        names = ("num_features", "eps", "momentum", "affine", "warmup_steps")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


@contextmanager
def running_statistics(network: nn.Module) -> Iterator[None]:
    """Within the block, layers of ``network`` that normalise by batches use their running statistics, which stay."""
    kinds = (BatchRenorm1d, nn.modules.batchnorm._BatchNorm)
    layers = [layer for layer in network.modules() if isinstance(layer, kinds) and layer.training]
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PolicyError(otherwise)
