"""Networks of a user's own, as programs for RLlib have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyak.compat.rllib_face import (
    ENCODER_OUT,
    ActorCriticEncoderConfig,
    Columns,
    DQNCatalog,
    Encoder,
    ModelConfig,
    PPOCatalog,
    TorchModel,
    TorchRLModule,
)


class ConvFCNet(TorchModel, Encoder):
    """One convolution and one linear layer, of pictures with the channels first."""

    def __init__(self, config: Any) -> None:
        TorchModel.__init__(self, config)
        Encoder.__init__(self, config)
        self.conv1 = nn.Conv2d(config.input_dims[0], 16, kernel_size=3, stride=1, padding=1)
        self.fc = nn.Linear(config.input_dims[1] * config.input_dims[2] * 16, config.out_dim)

    def _forward(self, inputs: dict, **kwargs: Any) -> dict:
        x = F.relu(self.conv1(inputs[Columns.OBS]))
        return {ENCODER_OUT: self.fc(x.view(x.size(0), -1))}


@dataclass
class ConvFCNetConfig(ModelConfig):
    out_dim = 10

    def build(self, framework: str = "torch") -> ConvFCNet:
        return ConvFCNet(self)

    @property
    def output_dims(self) -> tuple[int, ...]:
        return (self.out_dim,)


class ConvCatalog(PPOCatalog):
    """One method says which encoder."""

    @classmethod
    def _get_encoder_config(cls, observation_space: Any, **kwargs: Any) -> ModelConfig:
        return ConvFCNetConfig(observation_space.shape)


class WholeEncoderCatalog(PPOCatalog):
    """Another method says it, too."""

    def _determine_components_hook(self) -> None:
        self.latent_dims = (10,)

    def build_actor_critic_encoder(self, framework: str = "torch") -> Any:
        base = ConvFCNetConfig(self.observation_space.shape)
        return ActorCriticEncoderConfig(base_encoder_config=base).build(framework)


class ConvDQNCatalog(DQNCatalog):
    def _determine_components_hook(self) -> None:
        self.latent_dims = (10,)

    def build_encoder(self, framework: str = "torch") -> Any:
        return ConvFCNetConfig(self.observation_space.shape).build(framework)


class OwnModule(TorchRLModule):
    """An actor-critic without a catalog."""

    def setup(self) -> None:
        hidden = self.model_config["hidden"]
        self.body = nn.Sequential(nn.Linear(self.observation_space.shape[0], hidden), nn.Tanh())
        self.policy, self.value = nn.Linear(hidden, int(self.action_space.n)), nn.Linear(hidden, 1)

    def _forward(self, batch: dict, **kwargs: Any) -> dict:
        features = self.body(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch: dict, embeddings: Any = None) -> Tensor:
        features = self.body(batch[Columns.OBS]) if embeddings is None else embeddings
        return self.value(features).squeeze(-1)


class WithoutValues(OwnModule):
    compute_values = None  # type: ignore[assignment]


def picture(*shape: int) -> Tensor:
    return torch.rand(*shape)
