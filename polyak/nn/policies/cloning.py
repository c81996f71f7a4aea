"""A policy that is an actor only, for behaviour cloning."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.choice import make_family
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import check_widths
from polyak.nn.networks.recall import RecurrentExtractor
from polyak.nn.plain import plain
from polyak.nn.policies.base import ActorPolicy, MemoryPolicy, Noise, StochasticActor
from polyak.nn.policies.bounded import BoundedGaussianActor


class ChoosingActor(StochasticActor):
    """Features -> hidden layers -> a distribution over choices of a Discrete, MultiDiscrete or MultiBinary. See
    :class:`~polyak.nn.policies.base.LayeredNetwork`.

    Raises:
        PolicyError: there is no distribution over the action space.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.action_family = make_family(self.action_space)
        self.action_net = self.layers(self.features_dim, self.action_family.n_outputs)

    @plain
    def get_distribution(self, obs: Obs) -> Distribution:
        return self.action_family(self.action_net(self.extract_features(obs, self.features_extractor)))


class CloningPolicy(MemoryPolicy, ActorPolicy):
    """An actor: a Gaussian around tanh of its network for a Box, a distribution over choices for other spaces.

    Args:
        observation_space: space of the observations.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        stochastic: for a Box: also learn the standard deviation, and sample; otherwise it always takes the mean.
        **options: see :class:`~polyak.nn.policies.base.MemoryPolicy`.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, *, stochastic: bool = False, **options: Any
    ) -> None:
        self.continuous = isinstance(action_space, spaces.Box)
        super().__init__(observation_space, action_space, squash_output=self.continuous, **options)
        self.stochastic = stochastic or not self.continuous
        self.net_arch = check_widths(self.net_arch, "net_arch")
        kind: Any = BoundedGaussianActor if self.continuous else ChoosingActor
        self.actor = self.new_network(kind, self.net_arch)
        if self.continuous and not stochastic:
            self.actor.log_std.requires_grad_(False)

    def extractors(self) -> dict[nn.Module, RecurrentExtractor]:
        return {} if self.recurrence is None else {self.actor: self.actor.features_extractor}

    def get_distribution(self, obs: Obs) -> Distribution:
        """The distributions of actions in the network's units for observations [B, ...]."""
        distribution: Distribution = self.actor.get_distribution(obs)
        return distribution

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return super().act(obs, deterministic or not self.stochastic)

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return super().draw_noise(batch, generator) if self.stochastic else {}
