"""A stochastic actor whose density is finite and smooth at the bounds of the actions, for learning from datasets.

Recorded actions often lie at the bounds: they were clipped, or saturated by tanh. For a Gaussian squashed by tanh they
are infinitely far from any mean, so that a few of them dominate a likelihood. Here only the mean is squashed, and
samples are clipped to the bounds when the policy acts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyak.envs.spaces import get_action_dim
from polyak.nn.distributions.gaussian import Gaussian, GaussianFamily
from polyak.nn.networks.encoders import Obs
from polyak.nn.plain import plain
from polyak.nn.policies.base import StochasticActor

LOG_STD_MIN, LOG_STD_MAX = -5.0, 0.0
"""Bounds of the log standard deviation, in units of the action space scaled to [-1, 1]."""


class BoundedGaussianActor(StochasticActor):
    """A Gaussian around tanh of a perceptron, whose log standard deviations are a parameter (AWAC, arXiv:2006.09359).

    Args:
        *args: see :class:`~polyak.nn.policies.base.LayeredNetwork`.
        log_std_init: initial log standard deviation of each action.
        **options: see :class:`~polyak.nn.policies.base.LayeredNetwork`.
    """

    def __init__(self, *args: Any, log_std_init: float = -1.0, **options: Any) -> None:
        super().__init__(*args, **options)
        self.action_family = GaussianFamily(get_action_dim(self.action_space))
        self.mu = self.layers(self.features_dim, self.action_family.action_dim, squash_output=True)
        self.log_std = self.action_family.make_log_std(self.features_dim, log_std_init)

    @plain
    def get_distribution(self, obs: Obs) -> Gaussian:
        """Returns the Gaussians for observations [B, ...], whose samples may lie beyond the bounds."""
        mean = self.mu(self.extract_features(obs, self.features_extractor))
        log_std = self.log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).expand_as(mean)
        return Gaussian(mean, log_std.exp(), log_std)

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions [B, A] in [-1, 1]; the mean if ``deterministic``."""
        if deterministic:
            return self.mu(self.extract_features(obs, self.features_extractor))
        return torch.clamp(self.get_distribution(obs).sample(), -1.0, 1.0)

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        return torch.clamp(super().sample_from(obs, noise), -1.0, 1.0)
