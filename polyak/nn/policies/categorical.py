"""Policies with a categorical actor and action-value critics: discrete SAC."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.discrete import Categorical, CategoricalFamily
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import NatureCNN, Obs
from polyak.nn.networks.layers import get_actor_critic_arch
from polyak.nn.plain import plain
from polyak.nn.policies.base import ActorPolicy, CriticEnsemble, StochasticActor, lagging


class CategoricalActor(StochasticActor):
    """One choice among A actions: observations [B, ...] -> logits [B, A]. See
    :class:`~polyak.nn.policies.base.LayeredNetwork`."""

    action_space: spaces.Discrete

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.action_family = CategoricalFamily(int(self.action_space.n))
        self.logits = self.layers(self.features_dim, self.action_family.n_outputs)

    @plain
    def get_distribution(self, obs: Obs) -> Categorical:
        return self.action_family(self.logits(self.extract_features(obs, self.features_extractor)))


class DiscreteCritic(CriticEnsemble):
    """K action-value functions of the same features: observations [B, ...] -> values of A actions each. See
    :class:`~polyak.nn.policies.base.CriticEnsemble`."""

    action_space: spaces.Discrete

    def make_q_network(self, inputs: int) -> nn.Module:
        """Returns one of the K perceptrons: features [B, inputs] -> values [B, A]."""
        return self.layers(inputs, int(self.action_space.n))

    def q_values(self, obs: Obs) -> Tensor:
        """Returns the K values of all actions: [K, B, A]."""
        features = self.extract_features(obs, self.features_extractor)
        return torch.stack([network(features) for network in self.q_networks])

    def forward(self, obs: Obs) -> tuple[Tensor, ...]:
        """Returns the K values of all actions, each [B, A]."""
        return tuple(self.q_values(obs).unbind())


class CategoricalPolicy(ActorPolicy):
    """A categorical actor, K critics of all actions, and a target copy of the critics; networks share nothing.

    Args:
        observation_space: space of the observations.
        action_space: a Discrete.
        n_critics: K.
        **options: see :class:`~polyak.nn.policies.base.LayeredPolicy`. ``net_arch`` has the hidden widths of
            actor and critics, a list or ``dict(pi=[...], qf=[...])``; ``None`` takes [256, 256], or none after
            :class:`~polyak.nn.NatureCNN`.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    targets = ("critic_target",)

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Discrete, *, n_critics: int = 2, **options: Any
    ) -> None:
        super().__init__(observation_space, action_space, **options)
        if not isinstance(action_space, spaces.Discrete):
            raise PolicyError(f"a categorical actor needs a Discrete action space, got {action_space}.")
        self._actor_arch, self._critic_arch = get_actor_critic_arch(self.net_arch)
        self.n_critics = n_critics
        self._build_networks()

    def default_arch(self) -> list[int]:
        return [] if self.features_extractor_class is NatureCNN else [256, 256]

    def _build_networks(self) -> None:
        self.actor = self.make_actor()
        self.critic = self.make_critic()
        self.critic_target = lagging(self.make_critic(), self.critic).eval()

    def make_actor(self) -> CategoricalActor:
        """A new actor, with its own features extractor."""
        return self.new_network(CategoricalActor, self._actor_arch)

    def make_critic(self) -> DiscreteCritic:
        """New critics, with their own features extractor."""
        return self.new_network(DiscreteCritic, self._critic_arch, n_critics=self.n_critics)
