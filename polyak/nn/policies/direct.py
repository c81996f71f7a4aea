"""A policy that is a single network, for random search in weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.envs.spaces import get_action_dim
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import ExtractorClass, Obs
from polyak.nn.networks.layers import Activation, check_widths, create_mlp
from polyak.nn.options import keywords_of
from polyak.nn.plain import plain
from polyak.nn.policies.base import Policy


class DirectPolicy(Policy):
    """Features -> hidden layers -> actions of a Box, or scores whose argmax is the choice.

    Args:
        observation_space: what it reads.
        action_space: Box or Discrete.
        net_arch: widths of the hidden layers; ``None`` takes [64, 64], an empty list is a linear policy.
        activation_fn: follows every hidden layer.
        with_bias: whether the layers have a bias.
        squash_output: for a Box: pass actions through tanh and stretch them to the bounds, instead of clipping.
        features_extractor_class: see :class:`~polyak.nn.policies.base.Policy`.
        features_extractor_kwargs: see :class:`~polyak.nn.policies.base.Policy`.
        normalize_images: divide uint8 images by 255.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        net_arch: Sequence[int] | None = None,
        activation_fn: Activation = nn.ReLU,
        with_bias: bool = True,
        squash_output: bool = True,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
    ) -> None:
        if not isinstance(action_space, spaces.Box | spaces.Discrete):
            raise PolicyError(f"this policy acts in a Box or a Discrete, but the action space is {action_space}.")
        chooses = isinstance(action_space, spaces.Discrete)
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class=features_extractor_class,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=normalize_images,
            squash_output=squash_output and not chooses,
        )
        self.chooses, self.with_bias = chooses, with_bias
        self.net_arch = [64, 64] if net_arch is None else check_widths(net_arch, "net_arch")
        self.activation_fn = activation_fn
        self._build_networks()

    @classmethod
    def keywords(cls, net_arch: Sequence[int] | None = None, **defaults: Any) -> set[str]:
        """Names that ``policy_kwargs`` may hold; a policy that is linear by its name stays linear."""
        return keywords_of(cls) - ({"net_arch", "activation_fn"} if net_arch is not None else set())

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
