"""A policy that is a single network, for random search in weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.envs.spaces import get_action_dim
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import check_widths, create_mlp
from polyak.nn.plain import plain
from polyak.nn.policies.base import LayeredPolicy


class DirectPolicy(LayeredPolicy):
    """Features -> hidden layers -> actions of a Box, or scores whose argmax is the choice.

    Args:
        observation_space: space of the observations.
        action_space: Box or Discrete.
        with_bias: whether the layers have a bias.
        squash_output: for a Box: pass actions through tanh and stretch them to the bounds, instead of clipping.
        **options: see :class:`~polyak.nn.policies.base.LayeredPolicy`. ``net_arch=None`` takes [64, 64], an
            empty list is a linear policy.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    fixed = frozenset()

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        with_bias: bool = True,
        squash_output: bool = True,
        **options: Any,
    ) -> None:
        if not isinstance(action_space, spaces.Box | spaces.Discrete):
            raise PolicyError(f"this policy acts in a Box or a Discrete, but the action space is {action_space}.")
        self.chooses, self.with_bias = isinstance(action_space, spaces.Discrete), with_bias
        squashes = squash_output and not self.chooses
        super().__init__(observation_space, action_space, squash_output=squashes, **options)
        self.net_arch = check_widths(self.net_arch, "net_arch")
        self._build_networks()

    def default_arch(self) -> list[int]:
        return [64, 64]

    @classmethod
    def keywords(cls, net_arch: Sequence[int] | None = None, **defaults: Any) -> set[str]:
        """Names that ``policy_kwargs`` may hold; a policy that is linear by its name stays linear."""
        return super().keywords() - ({"net_arch", "activation_fn"} if net_arch is not None else set())

    def _build_networks(self) -> None:
        self.features_extractor = self.make_features_extractor()
        inputs, space = self.features_extractor.features_dim, self.action_space
        outputs = int(space.n) if isinstance(space, spaces.Discrete) else get_action_dim(space)
        layers = create_mlp(inputs, outputs, self.net_arch, self.activation_fn, self.squash_output, self.with_bias)
        self.action_net = nn.Sequential(*layers)

    @plain
    def forward(self, obs: Obs) -> Tensor:
        """Observations [B, ...] -> actions [B, ...] in the network's units."""
        outputs = self.action_net(self.extract_features(obs, self.features_extractor))
        return outputs.argmax(1) if self.chooses else outputs.reshape(-1, *(self.action_space.shape or ()))

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return self(obs)
