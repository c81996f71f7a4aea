"""SimBa's actor and critics (arXiv:2410.09754): those of SAC as residual networks of normalised observations."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import nn

from polyak.envs.spaces import is_image_space
from polyak.nn.initial_weights import orthogonal
from polyak.nn.networks.residual import NormalisedFeatures, RunningNorm, residual_layers
from polyak.nn.policies.base import NumpyObs
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy, SquashedGaussianActor


class SimBaActor(SquashedGaussianActor):
    """See :class:`~polyak.nn.policies.continuous.SquashedGaussianActor`; ``net_arch`` names residual blocks."""

    def make_latent(self, inputs: int) -> nn.Sequential:
        return nn.Sequential(*residual_layers(inputs, self.net_arch, self.activation_fn))


class SimBaCritic(ContinuousCritic):
    """See :class:`~polyak.nn.policies.continuous.ContinuousCritic`; ``net_arch`` names residual blocks."""

    def make_q_network(self, inputs: int) -> nn.Module:
        layers = residual_layers(inputs, self.net_arch, self.activation_fn)
        return nn.Sequential(*layers, orthogonal(nn.Linear(self.net_arch[-1], 1)))


class SimBaPolicy(ContinuousPolicy):
    """An actor and critics that read observations standardised by the statistics of all those given to :meth:`observe`.

    All networks, targets too, share these statistics. Images are not standardised; nor is a Dict that has some.

    Args:
        *args: see :class:`~polyak.nn.policies.continuous.ContinuousPolicy`.
        **kwargs: see ``args``. ``net_arch`` names the width of each residual block.
    """

    norm: RunningNorm | None

    def _build_networks(self) -> None:
        self.norm = None
        super()._build_networks()

    def make_features_extractor(self) -> Any:
        """Returns a new features extractor, followed by the one normalisation, unless it reads images or learns."""
        extractor: Any = super().make_features_extractor()
        parts = self.observation_space.spaces.values() if isinstance(self.observation_space, spaces.Dict) else ()
        images = any(map(is_image_space, (self.observation_space, *parts)))
        if images or any(True for _ in extractor.parameters()):
            return extractor
        if self.norm is None:
            self.norm = RunningNorm(extractor.features_dim)
        return NormalisedFeatures(extractor, self.norm)

    @torch.no_grad()
    def observe(self, observations: NumpyObs) -> None:
        """Add observations [B, ...] to the statistics."""
        if self.norm is not None:
            raw, _ = self.obs_to_tensor(observations)
            self.norm.update(self.actor.features_extractor[0](self.preprocess(raw)))
