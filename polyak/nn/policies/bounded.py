"""A stochastic actor whose density is finite and smooth at the bounds of the actions, for learning from datasets.

Recorded actions often lie at the bounds: they were clipped, or saturated by tanh. For a Gaussian squashed by tanh they
are infinitely far from any mean, so that a few of them dominate a likelihood. Here only the mean is squashed, and
samples are clipped to the bounds when the policy acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.envs.spaces import get_action_dim
from polyak.nn.distributions.gaussian import Gaussian, GaussianFamily
from polyak.nn.networks.encoders import ExtractorClass, Obs
from polyak.nn.networks.layers import Activation, create_mlp
from polyak.nn.plain import plain
from polyak.nn.policies.base import Network

LOG_STD_MIN, LOG_STD_MAX = -5.0, 0.0
"""Bounds of the log standard deviation, in units of the action space scaled to [-1, 1]."""


class BoundedGaussianActor(Network):
    """A Gaussian around tanh of a perceptron, whose log standard deviations are a parameter (AWAC, arXiv:2006.09359).

    Args:
        observation_space: what it reads.
        action_space: a Box of A entries.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        log_std_init: initial log standard deviation of each action.
        normalize_images: divide uint8 images by 255.
    """

    has_target: ClassVar[bool] = False

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        log_std_init: float = -1.0,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn = list(net_arch), activation_fn
        self.action_family = GaussianFamily(get_action_dim(action_space))
        layers = create_mlp(features_dim, self.action_family.action_dim, net_arch, activation_fn, squash_output=True)
        self.mu = nn.Sequential(*layers)
        self.log_std = self.action_family.make_log_std(features_dim, log_std_init)

    @staticmethod
    def default_net_arch(extractor_class: ExtractorClass) -> list[int]:
        """Hidden widths of actor and critics when the user gives none."""
        return [256, 256]

    @plain
    def get_distribution(self, obs: Obs) -> Gaussian:
        """The Gaussians for observations [B, ...], whose samples may lie beyond the bounds."""
        mean = self.mu(self.extract_features(obs, self.features_extractor))
        log_std = self.log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).expand_as(mean)
        return Gaussian(mean, log_std.exp(), log_std)

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, A] in [-1, 1]; the mean if ``deterministic``."""
        if deterministic:
            return self.mu(self.extract_features(obs, self.features_extractor))
        return torch.clamp(self.get_distribution(obs).sample(), -1.0, 1.0)

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        """Actions [B, ...] by noise as the family of the distribution draws it."""
        return torch.clamp(self.get_distribution(obs).sample_from(noise), -1.0, 1.0)
