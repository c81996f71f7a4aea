"""An actor, action-value critics and a state-value critic, which may have a lagging copy."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from polyak.nn.networks.encoders import Obs
from polyak.nn.policies.base import LayeredNetwork, lagging
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy


class StateCritic(LayeredNetwork):
    """A state-value function: observations [B, ...] -> [B]. See :class:`~polyak.nn.policies.base.LayeredNetwork`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.vf = self.layers(self.features_dim, 1)

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
        return self.new_network(StateCritic, self._critic_arch)


class CriticWithoutTarget(ContinuousCritic):
    """See :class:`~polyak.nn.policies.continuous.ContinuousCritic`; these critics have no lagging copy."""

    has_target: ClassVar[bool] = False


class LaggingValuePolicy(ValuedPolicy):
    """See :class:`ValuedPolicy`; the critic of states has a lagging copy, in place of those of the others."""

    def _build_networks(self) -> None:
        super()._build_networks()
        self.value_target = lagging(self.make_value(), self.value).eval()
        self.targets += ("value_target",)
