"""Policies that act greedily by action values: DQN and its family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.fast.acting import Chain, is_plain, plain
from polyak.nn.fast.array_layers import GreedyHead
from polyak.nn.networks.encoders import ExtractorClass, NatureCNN, Obs
from polyak.nn.networks.layers import Activation, check_widths, create_mlp
from polyak.nn.policies.base import Network, Policy


class QNetwork(Network):
    """Action values of a finite number of actions: observations [B, ...] -> [B, A].

    Args:
        observation_space: what it reads.
        action_space: a Discrete of A actions.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        net_arch: widths of the hidden layers; ``None`` takes [64, 64].
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 pictures by 255.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        features_extractor: nn.Module,
        features_dim: int,
        net_arch: Sequence[int] | None = None,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.net_arch = [64, 64] if net_arch is None else list(net_arch)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.activation_fn = activation_fn
        self.q_net = nn.Sequential(*create_mlp(features_dim, int(action_space.n), self.net_arch, activation_fn))

    @plain
    def forward(self, obs: Obs) -> Tensor:
        return self.q_net(self.extract_features(obs, self.features_extractor))


class ValuePolicy(Policy):
    """An action-value network and its target; acts greedily. Exploration is the algorithm's business.

    Args:
        observation_space: what it reads.
        action_space: a Discrete.
        net_arch: widths of the hidden layers; ``None`` takes [64, 64], or none after :class:`NatureCNN`.
        activation_fn: follows every hidden layer.
        features_extractor_class: see :class:`~polyak.nn.policies.base.Policy`.
        features_extractor_kwargs: see :class:`~polyak.nn.policies.base.Policy`.
        normalize_images: divide uint8 pictures by 255.

    Raises:
        PolicyError: another action space, or a ``net_arch`` that is not a list of widths.
    """

    targets = ("q_net_target",)

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        *,
        net_arch: Sequence[int] | None = None,
        activation_fn: Activation = nn.ReLU,
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
            raise PolicyError(f"action values need a Discrete action space, got {action_space}.")
        if net_arch is None:
            net_arch = [] if self.features_extractor_class is NatureCNN else [64, 64]
        self.net_arch = check_widths(net_arch, "net_arch")
        self.activation_fn = activation_fn
        self._build_networks()

    def _build_networks(self) -> None:
        self.q_net = self.make_q_net()
        self.q_net_target = self.make_q_net()
        self.q_net_target.load_state_dict(self.q_net.state_dict())
        self.q_net_target.requires_grad_(False).eval()

    def make_q_net(self) -> QNetwork:
        """A new action-value network."""
        extractor = self.make_features_extractor()
        return QNetwork(
            self.observation_space,
            self.action_space,  # type: ignore[arg-type]
            extractor,
            extractor.features_dim,  # type: ignore[arg-type]
            self.net_arch,
            self.activation_fn,
            self.normalize_images,
        )

    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Greedy actions [B]."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Greedy actions [B], whatever ``deterministic`` says."""
        return self.q_net(obs).argmax(dim=1)

    def acting_chain(self) -> Chain | None:
        q_net = self.q_net
        if not isinstance(q_net, QNetwork) or not is_plain(self, "act", "_predict"):
            return None
        if not is_plain(q_net, "forward", "extract_features", "preprocess", "_predict"):
            return None
        return Chain((self, q_net), (q_net.features_extractor, q_net.q_net), GreedyHead)
