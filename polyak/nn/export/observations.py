"""Conversion of observations of the environment to those that a policy reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.envs.spaces import is_image_space
from polyak.envs.wrappers.normalize import VecNormalize
from polyak.nn.errors import PolicyError
from polyak.nn.export.ports import Port, observation_ports

WHOLE = None
"""The key of an observation that is one array."""


class Normaliser(nn.Module):
    """``VecNormalize`` with fixed statistics: (x - mean) / sqrt(var + eps) within [-clip, clip], [B, ...] each.

    Computed in float64, as in ``VecNormalize``, and returned as float32.

    Args:
        mean, var: of the shape of one observation.
        epsilon: added to variances.
        clip: bound of the result.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: np.ndarray, var: np.ndarray, epsilon: float, clip: float) -> None:
        super().__init__()
        self.clip = float(clip)
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("deviation", torch.as_tensor(np.sqrt(var + epsilon), dtype=torch.float64))

    def forward(self, observations: Tensor) -> Tensor:
        """[B, ...] -> [B, ...] float32"""
        scaled = (observations.double() - self.mean) / self.deviation
        return scaled.clamp(-self.clip, self.clip).float()


class Reader(nn.Module):
    """Applies channel order and normalisation to raw observations.

    Args:
        space: the space of the observations that the policy reads.
        normalizer: the statistics with which the policy learned; ``None``: there are none.
        channels_last: keys of the images that are given as (H, W, C) where the policy reads (C, H, W); ``WHOLE`` for an
            observation that is an image.
    """

    def __init__(
        self,
        space: spaces.Space,
        normalizer: VecNormalize | None = None,
        channels_last: Collection[str | None] = (),
    ) -> None:
        super().__init__()
        self.space, self.channels_last = space, frozenset(channels_last)
        self.raw_space = self._raw(space, normalizer)
        self.ports: list[Port] = observation_ports(self.raw_space)
        self._keys: list[Any] = list(space.spaces) if isinstance(space, spaces.Dict) else [WHOLE]
        self.normalisers = nn.ModuleDict()
        if normalizer is not None and normalizer.norm_obs:
            statistics: Any = normalizer.obs_rms
            for key, rms in (statistics if isinstance(statistics, dict) else {WHOLE: statistics}).items():
                part = Normaliser(rms.mean, rms.var, normalizer.epsilon, normalizer.clip_obs)
                self.normalisers[str(self._keys.index(key))] = part

    def _raw(self, space: spaces.Space, normalizer: VecNormalize | None) -> spaces.Space:
        """The space before conversion."""
        beneath = getattr(getattr(normalizer, "venv", None), "observation_space", None)
        if isinstance(space, spaces.Dict):
            known = beneath.spaces if isinstance(beneath, spaces.Dict) else {}
            raw = ((key, self._raw_part(key, part, known.get(key))) for key, part in space.spaces.items())
            return spaces.Dict(OrderedDict(raw))  # in this order
        return self._raw_part(WHOLE, space, beneath)

    def _raw_part(self, key: str | None, space: spaces.Space, beneath: spaces.Space | None) -> spaces.Space:
        # normalised images are floats; those beneath have the bounds and the dtype of the environment
        known = beneath if beneath is not None and beneath.shape == space.shape else space
        return _channels_last(known) if key in self.channels_last else known

    def forward(self, observations: Sequence[Tensor]) -> Any:
        """Maps raw tensors [B, ...], one for each of :attr:`ports`, to the policy's observations: a tensor, or a dict
        of them."""
        found = {}
        for i, (key, given) in enumerate(zip(self._keys, observations, strict=True)):
            values = given.movedim(-1, 1) if key in self.channels_last else given
            if str(i) in self.normalisers:
                values = self.normalisers[str(i)](values)
            found[key] = values.float() if values.dtype == torch.float64 else values
        return found if isinstance(self.space, spaces.Dict) else found[WHOLE]

    def of(self, observations: Sequence[Tensor], key: str) -> Tensor:
        """The raw entry of one key."""
        return observations[self._keys.index(key)]


def image_keys(space: spaces.Space) -> list[str | None]:
    """Returns the keys of the images, ``WHOLE`` if the observation is one.

    Raises:
        PolicyError: the space has no image.
    """
    named: Mapping[Any, spaces.Space] = space.spaces if isinstance(space, spaces.Dict) else {WHOLE: space}
    keys = [key for key, part in named.items() if is_image_space(part, normalized_image=True)]
    if not keys:
        raise PolicyError(f"channels_last=True: the observation space {space} has no images. Leave channels_last out.")
    return keys


def _channels_last(space: Any) -> spaces.Box:
    """The Box of images (H, W, C) of one of images (C, H, W)."""
    return spaces.Box(np.moveaxis(space.low, 0, -1), np.moveaxis(space.high, 0, -1), dtype=space.dtype.type)
