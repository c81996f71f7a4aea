"""An encoder of observations that are neither a vector nor an image: the parts of a Dict, rows of numbers, one number.

RLlib has no default for these. Here they are read as polyak's own policies read them: images through convolutions, all
else unchanged, side by side, before the layers of a vector.

Shapes: B rows, F features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.compat.rllib_face.columns import ENCODER_OUT, Columns
from polyak.compat.rllib_face.models.configs import ModelConfig
from polyak.compat.rllib_face.models.encoders import Encoder, TorchModel

ALONE = ""
"""Name of the only part of a space that is not composed."""


@dataclass
class NestedEncoderConfig(ModelConfig):
    """Parts side by side, then an encoder of vectors: {"obs": {name: [B, ...]}} -> {"encoder_out": [B, F]}"""

    parts: Mapping[str, ModelConfig | None] = field(default_factory=dict)
    """Name -> encoder of that part; ``None``: it is read unchanged."""
    base_encoder_config: ModelConfig | None = None
    """The config of the encoder that reads all parts."""

    builds: ClassVar[str] = "nested:NestedEncoder"

    @property
    def output_dims(self) -> tuple[int, ...]:
        assert self.base_encoder_config is not None
        return tuple(self.base_encoder_config.output_dims)


class NestedEncoder(TorchModel, Encoder):
    """See :class:`NestedEncoderConfig`."""

    config: NestedEncoderConfig

    def __init__(self, config: NestedEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        assert config.base_encoder_config is not None
        encoders = {name: one.build("torch") for name, one in config.parts.items() if one is not None}
        self.parts, self.base = nn.ModuleDict(encoders), config.base_encoder_config.build("torch")

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observations = inputs[Columns.OBS]
        named = {ALONE: observations} if isinstance(observations, Tensor) else observations
        flat = torch.cat([self._features(name, named[name]) for name in self.config.parts], -1)
        found: dict[str, Any] = self.base({Columns.OBS: flat})
        return found

    def _features(self, name: str, part: Tensor) -> Tensor:
        """[B, ...] -> [B, F]"""
        if name not in self.parts:
            return part.float().reshape(len(part), -1)
        of_part, encoder = self.config.parts[name], self.parts[name]
        assert of_part is not None
        if tuple(part.shape[1:]) != tuple(of_part.input_dims or ()):
            part = part.movedim(1, -1)  # policies see images with the channels first
        features: Tensor = encoder({Columns.OBS: part.float()})[ENCODER_OUT]
        return features


def shapes_in(space: spaces.Space) -> dict[str, tuple[int, ...]] | None:
    """Returns the shapes of a space's parts by name, if such an encoder can read all of them; else ``None``."""
    found = space.spaces if isinstance(space, spaces.Dict) else {ALONE: space}
    known = all(isinstance(part, spaces.Box | spaces.MultiBinary) for part in found.values())
    return {name: tuple(part.shape or ()) for name, part in found.items()} if known else None


def width_of(shape: tuple[int, ...], config: ModelConfig | None) -> int:
    """F of one part."""
    return math.prod(shape if config is None else config.output_dims)
