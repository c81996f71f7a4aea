"""Descriptions of networks that build them: RLlib's names and defaults, polyak's layers.

``MLPEncoderConfig(input_dims=[4], hidden_layer_dims=[64], output_layer_dim=32).build()`` is a torch module that reads
``{"obs": [B, 4]}`` and returns ``{"encoder_out": [B, 32]}``. A custom description subclasses :class:`ModelConfig` and
builds a module that subclasses :class:`~polyak.compat.rllib_face.models.encoders.Encoder`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, ClassVar

from polyak.hyperparameters.declaration import require

Initializer = str | Callable[..., Any] | None
"""A name in ``torch.nn.init``, with or without the last underscore, or such a function; ``None``: torch's default."""


@dataclass
class ModelConfig:
    """The description of a network."""

    input_dims: Sequence[int] | None = None
    """Shape of one input."""
    always_check_shapes: bool = False
    """Refuse inputs of another shape by name, at every call."""

    builds: ClassVar[str] = ""
    """The class of the network, which is made with this description: ``"module:class"``."""

    def build(self, framework: str = "torch") -> Any:
        """Returns a new network.

        Raises:
            HyperparameterError: another framework than torch, or an option that cannot be.
        """
        if not self.builds:
            raise NotImplementedError(f"{type(self).__name__} does not say what it builds: write build(framework).")
        check_framework(framework)
        self.check()
        return resolve_name(f"polyak.compat.rllib_face.models.{self.builds}")(self)

    def check(self) -> None:
        """Refuse options that cannot be."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Shape of one output."""
        raise NotImplementedError(f"{type(self).__name__} does not say what comes out: write the property output_dims.")


def check_framework(framework: str) -> None:
    """Refuse any framework but torch."""
    require(framework == "torch", "framework", framework, "polyak's networks are torch modules: use 'torch'.")


def dims_of(config: ModelConfig, n: int) -> tuple[int, ...]:
    """Returns ``input_dims`` of a config, after checking that they are ``n`` positive integers."""
    dims, name = config.input_dims, type(config).__name__
    fits = dims is not None and len(dims) == n and all(isinstance(d, int) and d > 0 for d in map(_as_int, dims))
    require(
        fits, "input_dims", dims, f"{name} reads inputs of {n} dimension{'s' * (n > 1)}, such as {[84, 84, 3][:n]}."
    )
    return tuple(map(_as_int, dims or ()))


def _as_int(value: Any) -> Any:
    return int(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


@dataclass
class MLPConfig(ModelConfig):
    """A perceptron: hidden layers, then, if it has a width, an output layer."""

    hidden_layer_dims: Sequence[int] = (256, 256)
    """Widths of the hidden layers."""
    hidden_layer_use_bias: bool = True
    hidden_layer_activation: Any = "relu"
    """A name such as ``"relu"``, ``"tanh"`` or ``"linear"``, or a class of torch modules."""
    hidden_layer_use_layernorm: bool = False
    """Normalise the inputs of each hidden layer's activation."""
    hidden_layer_weights_initializer: Initializer = None
    hidden_layer_weights_initializer_config: Mapping[str, Any] | None = None
    hidden_layer_bias_initializer: Initializer = None
    hidden_layer_bias_initializer_config: Mapping[str, Any] | None = None
    output_layer_dim: int | None = None
    """Width of the output layer; ``None``: no output layer."""
    output_layer_use_layernorm: bool = False
    output_layer_use_bias: bool = True
    output_layer_activation: Any = "linear"
    output_layer_weights_initializer: Initializer = None
    output_layer_weights_initializer_config: Mapping[str, Any] | None = None
    output_layer_bias_initializer: Initializer = None
    output_layer_bias_initializer_config: Mapping[str, Any] | None = None
    clip_log_std: bool = False
    """The second half of the outputs are log standard deviations, and are clipped."""
    log_std_clip_param: float = 20.0
    """Bound of the log standard deviations, below and above."""
    sigma0: float | None = None
    """Initial noise of all layers, which are noisy then (arXiv:1706.10295); ``None``: no noise."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        if self.output_layer_dim is not None:
            return (int(self.output_layer_dim),)
        return (int(self.hidden_layer_dims[-1]),) if self.hidden_layer_dims else dims_of(self, 1)


@dataclass
class MLPEncoderConfig(MLPConfig):
    """A perceptron that reads vectors: {"obs": [B, *input_dims]} -> {"encoder_out": [B, *output_dims]}."""

    builds: ClassVar[str] = "encoders:MLPEncoder"


@dataclass
class MLPHeadConfig(MLPConfig):
    """A perceptron from features to outputs: [B, *input_dims] -> [B, *output_dims]."""

    builds: ClassVar[str] = "heads:MLPHead"


@dataclass
class FreeLogStdMLPHeadConfig(MLPConfig):
    """:class:`MLPHeadConfig`, but the second half of the outputs are parameters, the same for all inputs."""

    builds: ClassVar[str] = "heads:FreeLogStdMLPHead"

    def check(self) -> None:
        fix = "half of the outputs are means, half log standard deviations: use an even number."
        require((self.output_layer_dim or 1) % 2 == 0, "output_layer_dim", self.output_layer_dim, fix)


@dataclass
class CNNEncoderConfig(ModelConfig):
    """Convolutions over images with the channels last: {"obs": [B, H, W, C]} -> {"encoder_out": [B, F]}.

    ``input_dims`` are (H, W, C).
    """

    cnn_filter_specifiers: Sequence[Sequence[Any]] = field(default_factory=lambda: [[16, [4, 4], 2], [32, [4, 4], 2]])
    """For each layer: output channels, kernel, stride and, if not "same", padding ("same", "valid" or numbers). "same"
    leaves ceil(size / stride) pixels per side, with the odd pixel of padding below and to the right."""
    cnn_use_bias: bool = True
    cnn_activation: Any = "relu"
    cnn_use_layernorm: bool = False
    cnn_kernel_initializer: Initializer = None
    cnn_kernel_initializer_config: Mapping[str, Any] | None = None
    cnn_bias_initializer: Initializer = None
    cnn_bias_initializer_config: Mapping[str, Any] | None = None
    flatten_at_end: bool = True
    """Make a vector of the last layer's pixels, in the order rows, columns, channels; otherwise [B, H', W', C']."""
    builds: ClassVar[str] = "encoders:CNNEncoder"

    def layers(self) -> list[ConvLayer]:
        """Returns the layers, with the sizes between them worked out.

        Raises:
            HyperparameterError: a specifier that is none, or a kernel larger than the image.
        """
        height, width, channels = dims_of(self, 3)
        layers = []
        for specifier in self.cnn_filter_specifiers:
            layer = conv_layer(specifier, (height, width, channels))
            layers.append(layer)
            height, width, channels = layer.output
        require(bool(layers), "cnn_filter_specifiers", self.cnn_filter_specifiers, "name at least one layer.")
        return layers

    @property
    def output_dims(self) -> tuple[int, ...]:
        shape = self.layers()[-1].output
        return (math.prod(shape),) if self.flatten_at_end else shape


@dataclass(frozen=True)
class ConvLayer:
    """One convolution, with the sizes of its input and output."""

    channels: tuple[int, int]
    """Input and output channels."""
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    """Pixels of zeros left, right, above and below, as ``torch.nn.ZeroPad2d`` takes them."""
    output: tuple[int, int, int]
    """(H, W, C)."""


def conv_layer(specifier: Any, shape: tuple[int, int, int]) -> ConvLayer:
    """Returns a layer from its specifier [channels, kernel, stride(, padding)] and the shape (H, W, C) of its input.

    Raises:
        HyperparameterError: not such a specifier, or a kernel larger than the input.
    """
    fix = (
        "write [output channels, [kernel height, kernel width], stride] in positive integers, such as [32, [8, 8], 4]."
    )
    well_formed = isinstance(specifier, Sequence) and not isinstance(specifier, str) and len(specifier) in (3, 4)
    require(well_formed, "conv filter", specifier, fix)
    channels, kernel, stride = _as_int(specifier[0]), _pair(specifier[1]), _pair(specifier[2])
    sizes = [channels, *kernel, *stride]
    require(all(isinstance(n, int) and n > 0 for n in sizes), "conv filter", specifier, fix)
    padding = specifier[3] if len(specifier) == 4 else "same"
    pads, outputs = [], []
    for side, k, s, p in zip(shape[:2], kernel, stride, _pair(padding), strict=True):
        before, after = _padding(side, k, s, p, specifier)
        large = f"its kernel is larger than the {shape[0]} x {shape[1]} pixels that it reads. Use a smaller one."
        require(side + before + after >= k, "conv filter", specifier, large)
        pads.append((before, after))
        outputs.append((side + before + after - k) // s + 1)
    (above, below), (left, right) = pads
    return ConvLayer(
        (shape[2], channels), kernel, stride, (left, right, above, below), (outputs[0], outputs[1], channels)
    )


def _padding(side: int, kernel: int, stride: int, padding: Any, specifier: Any) -> tuple[int, int]:
    """Zeros before and after a row of ``side`` pixels."""
    if padding == "same":
        missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        return missing // 2, missing - missing // 2
    if padding == "valid":
        return 0, 0
    fix = "its padding must be 'same', 'valid', or a number of pixels of at least 0."
    require(isinstance(padding, int) and padding >= 0, "conv filter", specifier, fix)
    return padding, padding


def _pair(value: Any) -> tuple[Any, Any]:
    pair = tuple(map(_as_int, value)) if isinstance(value, list | tuple) else (_as_int(value),) * 2
    return pair if len(pair) == 2 else (None, None)


@dataclass
class RecurrentEncoderConfig(ModelConfig):
    """Recurrent layers: {"obs": [B, T, *input_dims], "state_in": {"h": [B, K, H], "c": ...}} ->
    {"encoder_out": [B, T, H], "state_out": ...}; the state of an LSTM is h and c, of a GRU h."""

    recurrent_layer_type: str = "lstm"
    """``"lstm"`` or ``"gru"``."""
    hidden_dim: int | None = None
    """H units in each layer."""
    num_layers: int = 1
    """K layers, one above the other."""
    batch_major: bool = True
    """Sequences [B, T, ...]; ``False`` takes and gives [T, B, ...]."""
    hidden_weights_initializer: Initializer = None
    hidden_weights_initializer_config: Mapping[str, Any] | None = None
    use_bias: bool = True
    hidden_bias_initializer: Initializer = None
    hidden_bias_initializer_config: Mapping[str, Any] | None = None
    tokenizer_config: ModelConfig | None = None
    """The config of an encoder for each observation, before the recurrent layers; ``None``: no encoder."""
    builds: ClassVar[str] = "encoders:RecurrentEncoder"

    @property
    def output_dims(self) -> tuple[int, ...]:
        return (int(self.hidden_dim or 0),)

    def check(self) -> None:
        kind = self.recurrent_layer_type
        require(kind in ("lstm", "gru"), "recurrent_layer_type", kind, "use 'lstm' or 'gru'.")
        for name in ("hidden_dim", "num_layers"):
            value = getattr(self, name)
            require(isinstance(value, int) and value > 0, name, value, "give a positive integer.")
        require(self.use_bias, "use_bias", self.use_bias, "recurrent layers have biases here: leave it out.")


@dataclass
class ActorCriticEncoderConfig(ModelConfig):
    """Features for an actor and a critic: {"obs": ...} -> {"encoder_out": {"actor": [B, F], "critic": [B, F]}}."""

    base_encoder_config: ModelConfig | None = None
    """The config of the encoder, or of both encoders."""
    shared: bool = True
    """Whether actor and critic read the same features; otherwise each has its own encoder."""
    inference_only: bool = False
    """Leave the critic's encoder out."""
    builds: ClassVar[str] = "encoders:ActorCriticEncoder"

    @property
    def output_dims(self) -> tuple[int, ...]:
        assert self.base_encoder_config is not None
        return self.base_encoder_config.output_dims

    def check(self) -> None:
        given = isinstance(self.base_encoder_config, ModelConfig)
        fix = "give the config of the encoder to build."
        require(given, "base_encoder_config", self.base_encoder_config, fix)
