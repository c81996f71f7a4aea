"""A features extractor whose features are standardised by fixed statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces

from polyak.envs.spaces import is_image_space
from polyak.nn.networks.encoders import ExtractorClass, Obs, make_extractor
from polyak.nn.networks.residual import NormalisedFeatures, RunningNorm


def can_be_standardised(space: spaces.Space) -> bool:
    """Whether standardising observations of the space makes sense: it has real numbers that are not images."""
    members = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    return not any(map(is_image_space, members)) and any(isinstance(member, spaces.Box) for member in members)


class StandardisedExtractor(NormalisedFeatures):
    """Standardises the features of another extractor, (x - mean) / deviation: observations -> [B, F].

    Args:
        observation_space: space of the observations.
        extractor_class: makes the features; it must have no parameters.
        extractor_kwargs: further arguments of that class.
        eps: added to variances, so that almost constant features are not amplified (TD3+BC adds 1e-3 to deviations).
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        extractor_class: ExtractorClass,
        extractor_kwargs: Mapping[str, Any] | None = None,
        eps: float = 1e-6,
    ) -> None:
        extractor: Any = make_extractor(observation_space, extractor_class, extractor_kwargs, True)
        super().__init__(extractor, RunningNorm(extractor.features_dim, eps))

    @torch.no_grad()
    def observe(self, obs: Obs) -> None:
        """Add preprocessed observations [B, ...] to the statistics."""
        self.norm.update(self[0](obs))

    @property
    def norm(self) -> RunningNorm:
        """The statistics."""
        norm: Any = self[1]
        return norm
