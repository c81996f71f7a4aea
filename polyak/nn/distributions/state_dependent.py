"""Generalised state-dependent exploration, gSDE (Raffin et al. 2020, arXiv:2005.05719, section 3).

The noise is eps = theta^T z(s) with theta = sigma * draws ~ N(0, sigma^2) [L, A]. The draws are the state of an
:class:`~polyak.nn.distributions.exploration_noise.ExplorationNoise` of the policy; from one draw to the next the noise
is a deterministic function of the state. Over theta, actions are Gaussian with variance z(s)^2 sigma^2, which is what
densities and entropies use.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyak.nn.distributions.base import Distribution, Family
from polyak.nn.distributions.gaussian import Gaussian, Squashed


@dataclass(frozen=True, eq=False)
class StateDependentGaussian(Gaussian):
    """Gaussians whose samples are a function of the state and of the current draws: a new draw gives new samples."""

    latent: Tensor
    """z(s) [B, L]"""
    sigma: Tensor
    """[L, A]"""
    draws: Tensor
    """Standard normal: [L, A] for all states, or [B, L, A], one for each. Densities do not read them."""

    def sample(self) -> Tensor:
        return self.sample_from(self.draws)

    def sample_from(self, noise: Tensor) -> Tensor:
        """Returns actions for given ``noise`` in place of the current draws, of the same shape."""
        return self.mean + state_dependent_noise(self.latent, noise * self.sigma)


@dataclass(frozen=True)
class StateDependentGaussianFamily(Family):
    """Gaussians with state-dependent exploration.

    Args:
        action_dim: A.
        full_std: one sigma for each (feature, action) pair [L, A] rather than for each feature [L, 1].
        use_expln: sigma = exp(x) for x <= 0 and 1 + log(1 + x) above, rather than exp(x) everywhere: grows slowly.
        squash: pass actions through tanh.
        learn_features: let the gradient of noise and density reach z.
        epsilon: added to the variance.
    """

    action_dim: int
    full_std: bool = True
    use_expln: bool = False
    squash: bool = False
    learn_features: bool = False
    epsilon: float = 1e-6

    @property
    def n_outputs(self) -> int:
        return self.action_dim

    def make_log_std(self, latent_dim: int, init: float = -2.0) -> nn.Parameter:
        """New ``log_std`` [L, A] ([L, 1] without ``full_std``) for L = ``latent_dim``, each ``init``."""
        return nn.Parameter(torch.full((latent_dim, self.action_dim if self.full_std else 1), float(init)))

    def sigma(self, log_std: Tensor) -> Tensor:
        """Sigma [L, A] of the parameter ``log_std`` [L, A], or [L, 1] without ``full_std``."""
        if self.use_expln:
            std = torch.where(log_std > 0, torch.log1p(log_std.clamp(min=0)) + 1.0, log_std.clamp(max=0).exp())
        else:
            std = log_std.exp()
        return std if self.full_std else std.expand(-1, self.action_dim)

    def __call__(self, mean: Tensor, log_std: Tensor, latent: Tensor, draws: Tensor) -> Distribution:
        """Means [B, A], ``log_std`` [L, A] or [L, 1], z [B, L], and standard normal draws [L, A] or [B, L, A]."""
        latent, sigma = latent if self.learn_features else latent.detach(), self.sigma(log_std)
        std = torch.sqrt(torch.mm(latent**2, sigma**2) + self.epsilon)
        gaussian = StateDependentGaussian(mean, std, std.log(), latent, sigma, draws)
        return Squashed(gaussian) if self.squash else gaussian


def state_dependent_noise(latent: Tensor, theta: Tensor) -> Tensor:
    """eps = theta^T z [B, A] of z [B, L]; theta is [L, A], or [B, L, A] with one matrix for each row."""
    if theta.dim() == 2:
        return torch.mm(latent, theta)
    return torch.bmm(latent.unsqueeze(1), theta).squeeze(1)
