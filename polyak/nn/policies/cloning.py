"""A policy that is an actor only, for behaviour cloning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.choice import make_family
from polyak.nn.networks.encoders import ExtractorClass, Obs
from polyak.nn.networks.layers import Activation, check_widths, create_mlp
from polyak.nn.networks.recall import Recalled, RecurrentExtractor, recurrence
from polyak.nn.plain import plain
from polyak.nn.policies.base import Decision, Network, Noise, Policy, State, actor_noise, shaped
from polyak.nn.policies.bounded import BoundedGaussianActor


class ChoosingActor(Network):
    """Features -> hidden layers -> a distribution over choices.

    Args:
        observation_space: what it reads.
        action_space: Discrete, MultiDiscrete or MultiBinary.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.

    Raises:
        PolicyError: there is no distribution over the action space.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.action_family = make_family(action_space)
        layers = create_mlp(features_dim, self.action_family.n_outputs, net_arch, activation_fn)
        self.action_net = nn.Sequential(*layers)

    @plain
    def get_distribution(self, obs: Obs) -> Distribution:
        """The distributions for observations [B, ...]."""
        return self.action_family(self.action_net(self.extract_features(obs, self.features_extractor)))

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...]; the likeliest if ``deterministic``."""
        return self.get_distribution(obs).get_actions(deterministic)

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        """Actions [B, ...] by noise as the family of the distribution draws it."""
        return self.get_distribution(obs).sample_from(noise)


class CloningPolicy(Policy):
    """An actor: a Gaussian around tanh of its network for a Box, a distribution over choices for other spaces.

    Args:
        observation_space: what it reads.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        stochastic: for a Box: also learn the standard deviation, and sample; otherwise it always takes the mean.
        net_arch: widths of the hidden layers.
        activation_fn: follows every hidden layer.
        features_extractor_class: see :class:`~polyak.nn.policies.base.Policy`.
        features_extractor_kwargs: see :class:`~polyak.nn.policies.base.Policy`.
        normalize_images: divide uint8 images by 255.
        memory: ``"lstm"`` or ``"gru"``: the actor is recurrent; ``None``: it is not.
        memory_size: units of each recurrent layer.
        memory_layers: how many of them, one above the other.
        memory_dropout: share of the outputs of a layer that is dropped before the next one in training.
        max_seq_len: steps of a recorded sequence to learn from, through which gradients go back.
        burn_in: steps before them, which only compute the recurrent state, because it is not recorded.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        stochastic: bool = False,
        net_arch: Sequence[int] = (256, 256),
        activation_fn: Activation = nn.ReLU,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        memory: str | None = None,
        memory_size: int = 256,
        memory_layers: int = 1,
        memory_dropout: float = 0.0,
        max_seq_len: int = 32,
        burn_in: int = 8,
    ) -> None:
        self.continuous = isinstance(action_space, spaces.Box)
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class=features_extractor_class,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=normalize_images,
            squash_output=self.continuous,
        )
        self.stochastic = stochastic or not self.continuous
        self.recurrence = recurrence(memory, memory_size, memory_layers, max_seq_len, burn_in, memory_dropout)
        kind: Any = BoundedGaussianActor if self.continuous else ChoosingActor
        self.net_arch = check_widths(net_arch, "net_arch")
        self.actor = kind(**self.network_arguments(), net_arch=self.net_arch, activation_fn=activation_fn)
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
        actions: Tensor = self.actor(obs, deterministic or not self.stochastic)
        return shaped(actions, self.codec.shape) if self.continuous else actions

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if not noise or masks is not None:
            return super().decide(obs, noise, state, masks)
        given: Any = obs if state is None else Recalled(obs, state)
        actions = self.actor.sample_from(given, noise["actions"])
        actions = shaped(actions, self.codec.shape) if self.continuous else actions
        return Decision(actions, state=None if state is None else self.next_state(given))

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return actor_noise(self, self.actor, batch, generator) if self.stochastic else {}
