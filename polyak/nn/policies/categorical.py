"""Policies with a categorical actor and action-value critics: discrete SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.discrete import Categorical, CategoricalFamily
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import ExtractorClass, NatureCNN, Obs
from polyak.nn.networks.layers import Activation, create_mlp, get_actor_critic_arch
from polyak.nn.plain import plain
from polyak.nn.policies.base import Decision, Network, Noise, Policy, State, actor_noise


class CategoricalActor(Network):
    """One choice among A actions: observations [B, ...] -> logits [B, A].

    Args:
        observation_space: what it reads.
        action_space: a Discrete of A actions.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn = list(net_arch), activation_fn
        self.action_family = CategoricalFamily(int(action_space.n))
        self.logits = nn.Sequential(*create_mlp(features_dim, self.action_family.n_outputs, net_arch, activation_fn))

    @plain
    def get_distribution(self, obs: Obs) -> Categorical:
        """The action distribution for observations [B, ...]."""
        return self.action_family(self.logits(self.extract_features(obs, self.features_extractor)))

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B] int64; the likeliest if ``deterministic``."""
        return self.get_distribution(obs).get_actions(deterministic)

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        """Actions [B, ...] by noise as the family of the distribution draws it."""
        return self.get_distribution(obs).sample_from(noise)


class DiscreteCritic(Network):
    """K action-value functions of the same features: observations [B, ...] -> values of A actions each.

    Args:
        observation_space: what it reads.
        action_space: a Discrete of A actions.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
        n_critics: K.

    Raises:
        PolicyError: fewer than one critic.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
        n_critics: int = 2,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        if n_critics < 1:
            raise PolicyError(f"n_critics must be at least 1, got {n_critics}.")
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn, self.n_critics = list(net_arch), activation_fn, n_critics
        for k in range(n_critics):
            self.add_module(f"qf{k}", self.make_q_network(features_dim, int(action_space.n)))

    def make_q_network(self, inputs: int, outputs: int) -> nn.Module:
        """One of the K perceptrons: features [B, inputs] -> values [B, outputs]."""
        return nn.Sequential(*create_mlp(inputs, outputs, self.net_arch, self.activation_fn))

    @property
    def q_networks(self) -> list[nn.Module]:
        """The K perceptrons."""
        return [self.get_submodule(f"qf{k}") for k in range(self.n_critics)]

    def own_parameters(self) -> list[nn.Parameter]:
        """The parameters that the critics' loss trains: all."""
        return list(self.parameters())

    def q_values(self, obs: Obs) -> Tensor:
        """All K values of all actions: [K, B, A]."""
        features = self.extract_features(obs, self.features_extractor)
        return torch.stack([network(features) for network in self.q_networks])

    def forward(self, obs: Obs) -> tuple[Tensor, ...]:
        """All K values of all actions, each [B, A]."""
        return tuple(self.q_values(obs).unbind())


class CategoricalPolicy(Policy):
    """A categorical actor, K critics of all actions, and a target copy of the critics; networks share nothing.

    Args:
        observation_space: what it reads.
        action_space: a Discrete.
        net_arch: hidden widths of actor and critics, a list or ``dict(pi=[...], qf=[...])``; ``None`` takes
            [256, 256], or none after :class:`~polyak.nn.NatureCNN`.
        activation_fn: follows every hidden layer.
        n_critics: K.
        features_extractor_class: see :class:`~polyak.nn.policies.base.Policy`.
        features_extractor_kwargs: see :class:`~polyak.nn.policies.base.Policy`.
        normalize_images: divide uint8 images by 255.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    targets = ("critic_target",)

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        *,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        activation_fn: Activation = nn.ReLU,
        n_critics: int = 2,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class=features_extractor_class,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=normalize_images,
        )
        if not isinstance(action_space, spaces.Discrete):
            raise PolicyError(f"a categorical actor needs a Discrete action space, got {action_space}.")
        if net_arch is None:
            net_arch = [] if self.features_extractor_class is NatureCNN else [256, 256]
        self.net_arch = net_arch
        self._actor_arch, self._critic_arch = get_actor_critic_arch(net_arch)
        self.activation_fn = activation_fn
        self.n_critics = n_critics
        self._build_networks()

    def _build_networks(self) -> None:
        self.actor = self.make_actor()
        self.critic = self.make_critic()
        self.critic_target = self.make_critic()
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.critic_target.requires_grad_(False).eval()

    def make_actor(self) -> CategoricalActor:
        """A new actor, with its own features extractor."""
        return CategoricalActor(net_arch=self._actor_arch, **self.network_arguments(), activation_fn=self.activation_fn)

    def make_critic(self) -> DiscreteCritic:
        """New critics, with their own features extractor."""
        return DiscreteCritic(
            net_arch=self._critic_arch,
            n_critics=self.n_critics,
            **self.network_arguments(),
            activation_fn=self.activation_fn,
        )

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B] int64, counted from 0."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B] int64, counted from 0."""
        return self.actor(obs, deterministic)

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if not noise or masks is not None:
            return super().decide(obs, noise, state, masks)
        return Decision(self.actor.sample_from(obs, noise["actions"]))

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return actor_noise(self, self.actor, batch, generator)
