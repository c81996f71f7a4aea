"""An actor, action-value critics and a state-value critic, which may have a lagging copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import Activation, create_mlp
from polyak.nn.policies.base import Network
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy


class StateCritic(Network):
    """A state-value function: observations [B, ...] -> [B].

    Args:
        observation_space: what it reads.
        action_space: what the agent does.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
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
        self.vf = nn.Sequential(*create_mlp(features_dim, 1, net_arch, activation_fn))

    def forward(self, obs: Obs) -> Tensor:
        """[B]"""
        return self.vf(self.extract_features(obs, self.features_extractor)).squeeze(1)


class ValuedPolicy(ContinuousPolicy):
    """See :class:`~polyak.nn.policies.continuous.ContinuousPolicy`; the critic of states is as wide as the others, and
    has features of its own."""

    def _build_networks(self) -> None:
        super()._build_networks()
        self.value = self.make_value()

    def make_value(self) -> StateCritic:
        """A new critic of states, with its own features extractor."""
        arguments = self.network_arguments()
        return StateCritic(**arguments, net_arch=self._critic_arch, activation_fn=self.activation_fn)


class CriticWithoutTarget(ContinuousCritic):
    """See :class:`~polyak.nn.policies.continuous.ContinuousCritic`; there is no lagging copy of them."""

    has_target: ClassVar[bool] = False


class LaggingValuePolicy(ValuedPolicy):
    """See :class:`ValuedPolicy`; the critic of states has a lagging copy, in place of those of the others."""

    def _build_networks(self) -> None:
        super()._build_networks()
        self.value_target = self.make_value()
        self.value_target.load_state_dict(self.value.state_dict())
        self.value_target.requires_grad_(False).eval()
        self.targets += ("value_target",)
