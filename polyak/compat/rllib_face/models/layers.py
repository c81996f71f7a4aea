"""Perceptrons as RLlib's configs describe them, by polyak's own functions; names of activations and initializers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from polyak.hyperparameters.declaration import require
from polyak.nn.networks.layers import create_mlp
from polyak.nn.networks.noisy import NoisyLinear
from polyak.suggestions import did_you_mean

if TYPE_CHECKING:
    from polyak.compat.rllib_face.models.configs import Initializer, MLPConfig

ACTIVATIONS: dict[str, Callable[[], nn.Module] | None] = {
    "linear": None,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "leakyrelu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
}
NORM_EPS = 1e-3


def activation_called(name: Any) -> Callable[[], nn.Module] | None:
    """Returns the class or function that makes an activation; ``None`` for none.

    Raises:
        HyperparameterError: an unknown name.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        is_class = callable(name) and not isinstance(name, nn.Module)
        require(is_class, "activation", name, "give a name or a module class.")
        return name
    known = name.lower() in ACTIVATIONS
    require(known, "activation", name, f"there are {', '.join(ACTIVATIONS)}.{did_you_mean(name, ACTIVATIONS)}")
    return ACTIVATIONS[name.lower()]


def initialise(parameter: Tensor | None, initializer: Initializer, config: Mapping[str, Any] | None = None) -> None:
    """Fill a parameter again, by a function of ``torch.nn.init`` or its name; ``None`` leaves it as torch made it.

    Raises:
        HyperparameterError: an unknown name.
    """
    if initializer is None or parameter is None:
        return
    if isinstance(initializer, str):
        functions = {name: f for name, f in vars(nn.init).items() if name.endswith("_") and not name.startswith("_")}
        name = initializer.rstrip("_") + "_"
        fix = f"it is no function of torch.nn.init.{did_you_mean(name, functions)}"
        require(name in functions, "initializer", initializer, fix)
        functions[name](parameter, **(config or {}))
        return
    require(callable(initializer), "initializer", initializer, "give a name of torch.nn.init, or such a function.")
    initializer(parameter, **(config or {}))


class TorchMLP(nn.Module):
    """A perceptron, whose layers are ``mlp``: [B, inputs] -> [B, *output_dims]

    Args:
        config: the config of its layers.
        inputs: number of inputs.
    """

    def __init__(self, config: MLPConfig, inputs: int) -> None:
        super().__init__()
        layers = _layers(config, "hidden", inputs, config.hidden_layer_dims)
        if config.output_layer_dim is not None:
            width = int(config.hidden_layer_dims[-1]) if config.hidden_layer_dims else inputs
            layers += _layers(config, "output", width, [config.output_layer_dim])
        self.mlp = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.mlp(inputs)
        return outputs


def _layers(config: MLPConfig, part: str, inputs: int, widths: Any) -> list[nn.Module]:
    """Returns the hidden layers or the output layer."""

    def option(name: str) -> Any:
        return getattr(config, f"{part}_layer_{name}")

    activation = activation_called(option("activation"))
    norms = [partial(nn.LayerNorm, eps=NORM_EPS)] if option("use_layernorm") else []
    linear = None if config.sigma0 is None else partial(NoisyLinear, sigma0=config.sigma0)
    layers = create_mlp(
        inputs,
        0,
        list(widths),
        activation or nn.Identity,
        with_bias=option("use_bias"),
        post_linear_modules=norms,
        linear=linear,
    )
    layers = [layer for layer in layers if activation is not None or not isinstance(layer, nn.Identity)]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            initialise(layer.weight, option("weights_initializer"), option("weights_initializer_config"))
            initialise(layer.bias, option("bias_initializer"), option("bias_initializer_config"))
    return layers
