"""Parts of SimBa's networks: normalised inputs, and pre-norm residual blocks.

Lee et al. 2024, "SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning", arXiv:2410.09754,
section 4.

Shape letters: B batch, F features, D width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.initial_weights import orthogonal
from polyak.nn.networks.layers import Activation, check_activation, check_widths

EXPANSION = 4
"""Width of the hidden layer of a residual block, relative to the block."""


class RunningNorm(nn.Module):
    """Standardises each of F features by the mean and the variance of all rows given to :meth:`update`, eq. 1.

    [B, F] -> [B, F]: (x - mean) / sqrt(var + eps). Before the first update it is the identity.

    Args:
        num_features: F.
        eps: added to variances.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    """[] int64, rows seen."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("var", torch.ones(num_features) - eps)
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """[B, F] -> [B, F]"""
        return (x - self.mean) * (self.var + self.eps).rsqrt()

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add rows [B, F], eq. 2 for several rows: Chan, Golub and LeVeque 1979, "Updating Formulae".

        The statistics are float32, so that after some 10^7 rows they hardly change any more.
        """
        n, seen = len(x), self.count.double()
        var, mean = torch.var_mean(x.double(), 0, correction=0)
        share, step = n / (seen + n), mean - self.mean.double()
        self.var.copy_(torch.lerp(self.var.double(), var, share) + step**2 * share * (1 - share))
        self.mean.add_(step * share)
        self.count.add_(n)

    def extra_repr(self) -> str:
        """Returns names and values of the arguments."""
        return f"num_features={self.num_features}, eps={self.eps}"


class NormalisedFeatures(nn.Sequential):
    """A features extractor whose features are standardised: observations -> [B, features_dim].

    Args:
        extractor: an extractor without parameters, so that its features are distributed like the observations.
        norm: a normalisation of as many features.
    """

    def __init__(self, extractor: nn.Module, norm: RunningNorm) -> None:
        super().__init__(extractor, norm)
        self.features_dim = norm.num_features


class ResidualBlock(nn.Module):
    """x + MLP(LayerNorm(x)) with one hidden layer, four times as wide, eq. 3: [B, D] -> [B, D].

    Args:
        width: D.
        activation_fn: between the two linear layers.
    """

    def __init__(self, width: int, activation_fn: Activation = nn.ReLU) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand, self.activation = nn.Linear(width, EXPANSION * width), activation_fn()
        self.contract = nn.Linear(EXPANSION * width, width)
        for layer in (self.expand, self.contract):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, D]"""
        return x + self.contract(self.activation(self.expand(self.norm(x))))


def residual_layers(inputs: int, net_arch: Sequence[int], activation_fn: Activation = nn.ReLU) -> list[nn.Module]:
    """Returns a linear layer, as many residual blocks as ``net_arch`` has entries, and a layer normalisation, eq. 3 to
    5.

    For ``nn.Sequential``: [B, inputs] -> [B, net_arch[-1]].

    Args:
        inputs: number of features.
        net_arch: the width of each block; all must be equal.
        activation_fn: within the blocks.

    Raises:
        PolicyError: no block, or blocks of different widths.
    """
    check_activation(activation_fn)
    widths = check_widths(net_arch, "net_arch")
    if len(set(widths)) != 1:
        raise PolicyError(
            f"net_arch={list(net_arch)!r} must name one residual block or several of the same width, as [128, 128] "
            "does: the output of a block is added to its input."
        )
    blocks = [ResidualBlock(width, activation_fn) for width in widths]
    return [orthogonal(nn.Linear(inputs, widths[0])), *blocks, nn.LayerNorm(widths[0])]
