"""Encoders: from observations to features. Torch modules that take and return dicts, made of polyak's layers.

Shapes: B batch, T steps, F features, H, W, C of images.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from polyak.compat.rllib_face.columns import ACTOR, CRITIC, ENCODER_OUT, Columns
from polyak.compat.rllib_face.models.configs import (
    ActorCriticEncoderConfig,
    CNNEncoderConfig,
    MLPConfig,
    MLPEncoderConfig,
    RecurrentEncoderConfig,
    dims_of,
)
from polyak.compat.rllib_face.models.layers import TorchMLP, activation_called, initialise
from polyak.nn.networks.recurrent import Recurrent

STATES = {"lstm": {"hidden": "h", "cell": "c"}, "gru": {"hidden": "h"}}
"""The recurrent state of a layer: polyak's names -> RLlib's."""


class TorchModel(nn.Module):
    """A torch network built from a :class:`~polyak.compat.rllib_face.models.configs.ModelConfig`; subclasses write
    ``_forward``.

    Args:
        config: kept as ``self.config``.
    """

    def __init__(self, config: Any = None) -> None:
        nn.Module.__init__(self)
        self.config = config

    def forward(self, inputs: Any, **kwargs: Any) -> Any:
        """Computes ``_forward`` of the subclass, after checking shapes if the config requires it."""
        if getattr(self.config, "always_check_shapes", False):
            self._check_shape(inputs[Columns.OBS] if isinstance(inputs, dict) else inputs)
        return self._forward(inputs, **kwargs)

    def _forward(self, inputs: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must write _forward(inputs).")

    def _check_shape(self, values: Tensor) -> None:
        expected = tuple(self.config.input_dims)
        if tuple(values.shape[-len(expected) :]) != expected:
            raise ValueError(
                f"{type(self).__name__} reads inputs of shape [..., {', '.join(map(str, expected))}] (input_dims), got "
                f"{list(values.shape)}."
            )

    def get_num_parameters(self) -> tuple[int, int]:
        """Returns the number of trainable parameters, and that of others."""
        counts = [(p.numel(), p.requires_grad) for p in self.parameters()]
        return sum(n for n, learned in counts if learned), sum(n for n, learned in counts if not learned)


class Encoder:
    """Maps ``{"obs": [B, ...]}`` to ``{"encoder_out": [B, F]}``. A torch encoder subclasses :class:`TorchModel`, too.

    Args:
        config: kept as ``self.config``.
    """

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def get_initial_state(self) -> dict[str, Tensor]:
        """Returns its recurrent state at the start of an episode, by name; empty by default."""
        return {}


class MLPEncoder(TorchModel, Encoder):
    """A perceptron: see :class:`~polyak.compat.rllib_face.models.configs.MLPEncoderConfig`."""

    def __init__(self, config: MLPEncoderConfig | MLPConfig) -> None:
        TorchModel.__init__(self, config)
        self.net = TorchMLP(config, dims_of(config, 1)[0])

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {ENCODER_OUT: self.net(inputs[Columns.OBS])}


class CNNEncoder(TorchModel, Encoder):
    """Convolutions: see :class:`~polyak.compat.rllib_face.models.configs.CNNEncoderConfig`."""

    def __init__(self, config: CNNEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        self.net = nn.Sequential(TorchCNN(config), *([nn.Flatten()] if config.flatten_at_end else []))

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {ENCODER_OUT: self.net(inputs[Columns.OBS])}


class TorchCNN(nn.Module):
    """Convolutions, which are ``cnn``: [B, H, W, C] -> [B, H', W', C']

    Args:
        config: config of its layers.
    """

    def __init__(self, config: CNNEncoderConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for layer in config.layers():
            if any(layer.padding):
                layers.append(nn.ZeroPad2d(layer.padding))
            convolution = nn.Conv2d(*layer.channels, layer.kernel, layer.stride, bias=config.cnn_use_bias)
            initialise(convolution.weight, config.cnn_kernel_initializer, config.cnn_kernel_initializer_config)
            initialise(convolution.bias, config.cnn_bias_initializer, config.cnn_bias_initializer_config)
            layers.append(convolution)
            if config.cnn_use_layernorm:
                layers.append(ChannelNorm(layer.output[2]))
            if (activation := activation_called(config.cnn_activation)) is not None:
                layers.append(activation())
        self.cnn = nn.Sequential(*layers)

    def forward(self, pixels: Tensor) -> Tensor:
        pixels = pixels.movedim(-1, 1)
        if pixels.device.type == "cpu":  # convolutions there are fastest with the channels innermost
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.cnn(pixels).movedim(1, -1)
        return features


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel: [B, C, H, W] -> [B, C, H, W]"""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-3)

    def forward(self, pixels: Tensor) -> Tensor:
        return super().forward(pixels.movedim(1, -1)).movedim(-1, 1)


class RecurrentEncoder(TorchModel, Encoder):
    """LSTM or GRU: see :class:`~polyak.compat.rllib_face.models.configs.RecurrentEncoderConfig`."""

    def __init__(self, config: RecurrentEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        assert config.hidden_dim is not None
        self.tokenizer = None if config.tokenizer_config is None else config.tokenizer_config.build("torch")
        read = config if config.tokenizer_config is None else config.tokenizer_config
        width = math.prod(dims_of(config, 1) if read is config else read.output_dims)
        core = Recurrent(config.recurrent_layer_type, width, config.hidden_dim, config.num_layers)
        self.add_module(config.recurrent_layer_type, core)
        for name, parameter in core.named_parameters():
            kind = "bias" if name.startswith("bias") else "weights"
            chosen = (getattr(config, f"hidden_{kind}_initializer{end}") for end in ("", "_config"))
            initialise(parameter, *chosen)

    @property
    def core(self) -> Recurrent:
        """The recurrent layers: ``lstm`` or ``gru``."""
        found: Recurrent = getattr(self, self.config.recurrent_layer_type)
        return found

    def get_initial_state(self) -> dict[str, Tensor]:
        """Zeros [K, H] each."""
        names = STATES[self.core.kind]
        return {names[name]: part[0] for name, part in self.core.initial(1).items()}

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observations, names = inputs[Columns.OBS], STATES[self.core.kind]
        tokens = self.tokens(observations)
        tokens = tokens.transpose(0, 1) if self.config.batch_major else tokens
        state = inputs.get(Columns.STATE_IN) or {}
        if missing := [name for name in names.values() if name not in state]:
            raise KeyError(
                f"{type(self).__name__} needs {Columns.STATE_IN!r} with {list(names.values())}, [B, K, H] each; "
                f"{missing} are missing. get_initial_state() gives those of a new episode, [K, H] each."
            )
        outputs, then = self.core(tokens, {mine: state[theirs] for mine, theirs in names.items()})
        outputs = outputs.transpose(0, 1) if self.config.batch_major else outputs
        return {ENCODER_OUT: outputs, Columns.STATE_OUT: {names[mine]: part[-1] for mine, part in then.items()}}

    def tokens(self, observations: Tensor | dict[str, Tensor]) -> Tensor:
        """Returns the inputs of the recurrent layers for observations [B, T, *input_dims], or a dict of such: [B, T,
        F]"""
        if self.tokenizer is None:
            assert isinstance(observations, Tensor)
            return observations
        parts = {"": observations} if isinstance(observations, Tensor) else observations
        steps = next(iter(parts.values())).shape[:2]
        flat = {name: part.flatten(0, 1) for name, part in parts.items()}
        features: Tensor = self.tokenizer({Columns.OBS: flat.get("", flat)})[ENCODER_OUT]
        return features.unflatten(0, steps)


class ActorCriticEncoder(TorchModel, Encoder):
    """One encoder or two: see :class:`~polyak.compat.rllib_face.models.configs.ActorCriticEncoderConfig`."""

    def __init__(self, config: ActorCriticEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        assert config.base_encoder_config is not None
        if config.shared:
            self.encoder = config.base_encoder_config.build("torch")
        else:
            self.actor_encoder = config.base_encoder_config.build("torch")
            self.critic_encoder = None if config.inference_only else config.base_encoder_config.build("torch")

    @property
    def of_actor(self) -> Any:
        """The encoder that the actor reads."""
        return self.encoder if self.config.shared else self.actor_encoder

    @property
    def of_critic(self) -> Any:
        """The encoder that the critic reads; ``None`` where it was left out."""
        return self.encoder if self.config.shared else self.critic_encoder

    def get_initial_state(self) -> dict[str, Any]:
        """Returns the state of the single encoder, or of each by name."""
        if self.config.shared:
            return self.encoder.get_initial_state()
        both = {ACTOR: self.actor_encoder, CRITIC: self.critic_encoder}
        states = {name: part.get_initial_state() for name, part in both.items() if part is not None}
        return states if any(states.values()) else {}

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if self.config.shared:
            outputs = self.encoder(inputs)
            features = outputs[ENCODER_OUT]
            return {**outputs, ENCODER_OUT: {ACTOR: features, CRITIC: features}}
        both = {ACTOR: self.actor_encoder, CRITIC: self.critic_encoder}
        found = {name: part(_of(name, inputs)) for name, part in both.items() if part is not None}
        outputs = {ENCODER_OUT: {name: part[ENCODER_OUT] for name, part in found.items()}}
        states = {name: part[Columns.STATE_OUT] for name, part in found.items() if Columns.STATE_OUT in part}
        return {**outputs, Columns.STATE_OUT: states} if states else outputs


def _of(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs for one of two encoders, with the recurrent state of that one."""
    state = inputs.get(Columns.STATE_IN)
    return inputs if not state else {**inputs, Columns.STATE_IN: state[name]}
