"""Independent Gaussians, and Gaussians squashed by tanh."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Self

from polyak.nn.distributions.base import Distribution, Family, check_same_type
from polyak.ops.tsallis import gaussian_tsallis_entropy

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
LOG_2 = math.log(2.0)


@dataclass(frozen=True, eq=False)
class Gaussian(Distribution):
    """Independent Gaussians: all tensors are [B, A]."""

    mean: Tensor
    std: Tensor
    log_std: Tensor

    def log_prob(self, actions: Tensor) -> Tensor:
        z = (actions - self.mean) / self.std
        return (-0.5 * z * z - self.log_std - HALF_LOG_2PI).sum(dim=-1)

    def entropy(self) -> Tensor:
        return (self.log_std + (0.5 + HALF_LOG_2PI)).sum(dim=-1)

    def tsallis_entropy(self, q: float) -> Tensor:
        return gaussian_tsallis_entropy(self.log_std, q)

    def sample(self) -> Tensor:
        return self.sample_from(torch.randn_like(self.mean))

    def sample_from(self, noise: Tensor) -> Tensor:
        return self.mean + self.std * noise

    def sample_many(self, count: int) -> Tensor:
        """Independent actions for each state [B, M, A], differentiable."""
        rows, width = self.mean.shape
        noise = torch.randn(rows, count, width, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean.unsqueeze(1) + self.std.unsqueeze(1) * noise

    def mode(self) -> Tensor:
        return self.mean

    def kl(self, other: Self) -> Tensor:
        check_same_type(self, other)
        ratio = (self.std / other.std) ** 2
        return 0.5 * (ratio + ((self.mean - other.mean) / other.std) ** 2 - 1.0 - ratio.log()).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Squashed(Distribution):
    """A Gaussian passed through tanh, so that actions lie in (-1, 1) (SAC, arXiv:1812.05905, appendix C)."""

    gaussian: Gaussian

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density of squashed actions [B, A], -1 and 1 included: [B]."""
        return self.log_prob_of_tanh(inverse_tanh(actions))

    def log_prob_of_tanh(self, gaussian_actions: Tensor) -> Tensor:
        """Log-density [B] at the tanh of Gaussian actions [B, A]: more precise than inverting tanh."""
        correction = log_slope_of_tanh(gaussian_actions).sum(dim=-1)
        return self.gaussian.log_prob(gaussian_actions) - correction

    def entropy(self) -> None:
        """Returns None: the entropy of a squashed Gaussian has no closed form; estimate it by ``-log_prob``."""
        return None

    def sample(self) -> Tensor:
        return torch.tanh(self.gaussian.sample())

    def sample_from(self, noise: Tensor) -> Tensor:
        return torch.tanh(self.gaussian.sample_from(noise))

    def mode(self) -> Tensor:
        return torch.tanh(self.gaussian.mode())

    def sample_with_log_prob(self) -> tuple[Tensor, Tensor]:
        gaussian_actions = self.gaussian.sample()
        return torch.tanh(gaussian_actions), self.log_prob_of_tanh(gaussian_actions)

    def sample_many_with_log_prob(self, count: int) -> tuple[Tensor, Tensor]:
        """Independent actions for each state [B, M, A], differentiable, and their log-densities [B, M]."""
        one, gaussian_actions = self.gaussian, self.gaussian.sample_many(count)
        many = Gaussian(one.mean.unsqueeze(1), one.std.unsqueeze(1), one.log_std.unsqueeze(1))
        return torch.tanh(gaussian_actions), Squashed(many).log_prob_of_tanh(gaussian_actions)

    def kl(self, other: Self) -> Tensor:
        """[B]: that of the Gaussians, because an invertible map does not change it."""
        check_same_type(self, other)
        return self.gaussian.kl(other.gaussian)


@dataclass(frozen=True)
class GaussianFamily(Family):
    """Independent Gaussians whose log standard deviations are a parameter or a function of the state.

    Args:
        action_dim: A.
        squash: pass actions through tanh.
    """

    action_dim: int
    squash: bool = False

    @property
    def n_outputs(self) -> int:
        return self.action_dim

    def make_log_std(self, latent_dim: int, init: float = 0.0) -> nn.Parameter:
        """New log standard deviations [A] that do not depend on the state, each ``init``."""
        return nn.Parameter(torch.full((self.action_dim,), float(init)))

    def draw(self, batch: int, device: torch.device | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal: [B, A]."""
        return torch.randn(batch, self.action_dim, device=device, generator=generator)

    def __call__(self, mean: Tensor, log_std: Tensor) -> Distribution:
        """Means [B, A]; log standard deviations [A] or [B, A]."""
        if log_std.dim() < mean.dim():
            log_std = log_std.clone().expand_as(mean)  # a parameter, which steps of the optimizer change in place
        gaussian = Gaussian(mean, log_std.exp(), log_std)
        return Squashed(gaussian) if self.squash else gaussian


def inverse_tanh(y: Tensor) -> Tensor:
    """Inverse of tanh, finite also at -1 and 1, which are first moved inwards by one rounding unit."""
    limit = 1.0 - torch.finfo(y.dtype).eps
    return torch.atanh(y.clamp(-limit, limit))


def log_slope_of_tanh(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)), exact and finite for all finite x."""
    return 2.0 * (LOG_2 - x - F.softplus(-2.0 * x))
