"""Heads: from features to the parameters of actions, and to values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polyak.compat.rllib_face.models.configs import MLPConfig, dims_of
from polyak.compat.rllib_face.models.encoders import TorchModel
from polyak.compat.rllib_face.models.layers import perceptron


class MLPHead(TorchModel):
    """A perceptron: see :class:`~polyak.compat.rllib_face.models.configs.MLPHeadConfig`."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__(config)
        self.net = nn.Sequential(*perceptron(config, dims_of(config, 1)[0]))

    def _forward(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        return clipped(self.config, self.net(inputs))


class FreeLogStdMLPHead(TorchModel):
    """See :class:`~polyak.compat.rllib_face.models.configs.FreeLogStdMLPHeadConfig`; ``log_std`` [A] is a parameter."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__(config)
        assert config.output_layer_dim is not None
        half = config.output_layer_dim // 2
        means = type(config)(**{**vars(config), "output_layer_dim": half})
        self.net = nn.Sequential(*perceptron(means, dims_of(config, 1)[0]))
        self.log_std = nn.Parameter(torch.zeros(half))

    def _forward(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        mean = self.net(inputs)
        return clipped(self.config, torch.cat([mean, self.log_std.expand_as(mean)], -1))


def clipped(config: MLPConfig, outputs: Tensor) -> Tensor:
    """Outputs [B, 2 A] with the log standard deviations in bounds, if there are such."""
    if not config.clip_log_std:
        return outputs
    mean, log_std = outputs.chunk(2, -1)
    return torch.cat([mean, log_std.clamp(-config.log_std_clip_param, config.log_std_clip_param)], -1)
