"""Heads: from features to the parameters of actions, and to values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polyak.compat.rllib_face.models.configs import MLPConfig, dims_of
from polyak.compat.rllib_face.models.encoders import TorchModel
from polyak.compat.rllib_face.models.layers import TorchMLP


class MLPHead(TorchModel):
    """A perceptron: see :class:`~polyak.compat.rllib_face.models.configs.MLPHeadConfig`."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__(config)
        self._make_net(config)
        self.register_buffer("log_std_clip_param_const", torch.tensor([float(config.log_std_clip_param)]))

    def _make_net(self, config: MLPConfig) -> None:
        self.net = TorchMLP(config, dims_of(config, 1)[0])

    def _forward(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        return self._clipped(self.net(inputs))

    def _clipped(self, outputs: Tensor) -> Tensor:
        """Outputs [B, 2 A] with the log standard deviations in bounds, if there are such."""
        if not self.config.clip_log_std:
            return outputs
        mean, log_std = outputs.chunk(2, -1)
        bound = self.config.log_std_clip_param
        return torch.cat([mean, log_std.clamp(-bound, bound)], -1)


class FreeLogStdMLPHead(MLPHead):
    """See :class:`~polyak.compat.rllib_face.models.configs.FreeLogStdMLPHeadConfig`; ``log_std`` [A] is a parameter."""

    def _make_net(self, config: MLPConfig) -> None:
        assert config.output_layer_dim is not None
        half = config.output_layer_dim // 2
        super()._make_net(type(config)(**{**vars(config), "output_layer_dim": half}))
        self.log_std = nn.Parameter(torch.zeros(half))

    def _forward(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        mean = self.net(inputs)
        return self._clipped(torch.cat([mean, self.log_std.expand_as(mean)], -1))
