"""The default parts of a module, chosen by spaces and ``model_config``: override a ``build_...`` method to change one.

A custom encoder for PPO, for example::

    class MyCatalog(PPOCatalog):
        def build_actor_critic_encoder(self, framework):
            return ActorCriticEncoderConfig(base_encoder_config=MyConfig([3, 64, 64])).build(framework)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from gymnasium import spaces

from polyak.checkpoint.may_be_named import MayBeNamed
from polyak.compat.rllib_face.models.configs import (
    ActorCriticEncoderConfig,
    CNNEncoderConfig,
    FreeLogStdMLPHeadConfig,
    Initializer,
    MLPEncoderConfig,
    MLPHeadConfig,
    ModelConfig,
    RecurrentEncoderConfig,
    check_framework,
)
from polyak.compat.rllib_face.models.distributions import check_action_space, distribution_for
from polyak.compat.rllib_face.models.layers import activation_called
from polyak.compat.rllib_face.models.nested import NestedEncoderConfig, shapes_in, width_of
from polyak.compat.rllib_face.models.preprocessors import Preprocessor, get_preprocessor
from polyak.compat.rllib_face.models.torch_distributions import Distribution, TorchDiagGaussian
from polyak.envs.spaces import is_image_space, is_image_space_channels_first
from polyak.hyperparameters.declaration import Count, Positive, declared, fitted, require
from polyak.nn.networks.layers import check_widths
from polyak.suggestions import did_you_mean

IMAGES: dict[int, list[list[Any]]] = {
    96: [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 2]],
    84: [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
    64: [[16, [4, 4], 2], [32, [4, 4], 2], [64, [4, 4], 2], [128, [4, 4], 2]],
    42: [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
    10: [[16, [5, 5], 2], [32, [5, 5], 2]],
}
"""``conv_filters`` of square images, where none are given."""


@dataclass
class DefaultModelConfig:
    """The options of default modules. ``model_config={...}`` changes some of them."""

    fcnet_hiddens: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the encoder's layers, for vectors."""
    fcnet_activation: Any = "tanh"
    fcnet_kernel_initializer: Initializer = None
    fcnet_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    fcnet_bias_initializer: Initializer = None
    fcnet_bias_initializer_kwargs: Mapping[str, Any] | None = None
    fcnet_use_layernorm: bool = False
    conv_filters: list[Any] | None = None
    """[[channels, [kernel height, kernel width], stride], ...] of the encoder, for images; ``None`` takes the defaults
    for squares of 96, 84, 64, 42 and 10 pixels."""
    conv_activation: Any = "relu"
    conv_kernel_initializer: Initializer = None
    conv_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    conv_bias_initializer: Initializer = None
    conv_bias_initializer_kwargs: Mapping[str, Any] | None = None
    head_fcnet_hiddens: list[int] = field(default_factory=list)
    """Widths of the hidden layers of each head."""
    head_fcnet_activation: Any = "relu"
    head_fcnet_kernel_initializer: Initializer = None
    head_fcnet_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    head_fcnet_bias_initializer: Initializer = None
    head_fcnet_bias_initializer_kwargs: Mapping[str, Any] | None = None
    head_fcnet_use_layernorm: bool = False
    free_log_std: bool = False
    """Standard deviations of continuous actions are the same in all states, and not the network's output."""
    log_std_clip_param: Positive = 20.0
    """Bound of their logarithms, below and above."""
    vf_share_layers: bool = True
    """Actor and value function read the same encoder."""
    use_lstm: bool = False
    """Recurrent: an LSTM between encoder and heads."""
    max_seq_len: Count = 20
    """Steps through which gradients go back."""
    lstm_cell_size: Count = 256
    lstm_use_prev_action: bool = False
    lstm_use_prev_reward: bool = False
    lstm_kernel_initializer: Initializer = None
    lstm_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    lstm_bias_initializer: Initializer = None
    lstm_bias_initializer_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        hints = declared(type(self))
        for name, hint in hints.items():
            value = getattr(self, name)
            if hint in (bool, Count, Positive):
                setattr(self, name, fitted(f"model_config[{name!r}]", value, hint))
            elif name.endswith("_activation"):
                activation_called(value)
            elif name.endswith("_hiddens"):
                setattr(self, name, check_widths(value, f"model_config[{name!r}]"))
        for name in ("lstm_use_prev_action", "lstm_use_prev_reward"):
            fix = "the memory reads observations alone. Let a wrapper put last actions and rewards into them."
            require(not getattr(self, name), f"model_config[{name!r}]", True, fix)


REPLACED = {
    "post_fcnet_hiddens": "head_fcnet_hiddens",
    "post_fcnet_activation": "head_fcnet_activation",
    "fcnet_weights_initializer": "fcnet_kernel_initializer",
    "fcnet_weights_initializer_config": "fcnet_kernel_initializer_kwargs",
    "fcnet_bias_initializer_config": "fcnet_bias_initializer_kwargs",
    "conv_kernel_initializer_config": "conv_kernel_initializer_kwargs",
    "conv_bias_initializer_config": "conv_bias_initializer_kwargs",
    "lstm_weights_initializer": "lstm_kernel_initializer",
    "lstm_weights_initializer_config": "lstm_kernel_initializer_kwargs",
    "lstm_bias_initializer_config": "lstm_bias_initializer_kwargs",
    "lstm_use_prev_action_reward": "lstm_use_prev_action and lstm_use_prev_reward",
    "custom_model": ".rl_module(rl_module_spec=RLModuleSpec(module_class=...))",
    "custom_model_config": ".rl_module(rl_module_spec=RLModuleSpec(model_config=...))",
}
"""Entries of ``model_config`` that RLlib once had -> their replacements."""


_SLIP = 0.85
"""Likeness of two names from which on one is taken for the other misspelt."""


def check_model_config(
    given: Mapping[str, Any] | DefaultModelConfig | None, own: bool = False, **defaults: Any
) -> dict[str, Any]:
    """Returns all options of a default module: the given ones, merged over the algorithm's defaults and those of all.

    Args:
        given: options.
        own: whether a program's own catalog or module reads them: names that do not resemble an option are kept.
        defaults: the algorithm's defaults.

    Raises:
        HyperparameterError: an unknown option, with the most similar one, or an invalid value.
    """
    if not isinstance(given, Mapping | None) and is_dataclass(given):
        given = asdict(given)
    require(isinstance(given, Mapping | None), "model_config", given, "give a dict, or a DefaultModelConfig.")
    known = [f.name for f in fields(DefaultModelConfig)]
    everything = {**defaults, **(given or {})}
    options = {name: value for name, value in everything.items() if name in known}
    for name in everything.keys() - options.keys():
        hint = f" Use {REPLACED[name]}." if name in REPLACED else did_you_mean(str(name), known)
        if str(name).startswith("fusionnet_"):
            hint = " No network here fuses features: those of several parts are set side by side."
        slip = name in REPLACED or bool(get_close_matches(str(name), known, 1, _SLIP))
        require(own and not slip, f"model_config[{name!r}]", everything[name], f"there is no such option.{hint}")
    return {**everything, **asdict(DefaultModelConfig(**options))}


class Catalog(MayBeNamed):
    """Chooses encoders and action distributions.

    Args:
        observation_space: the environment's, whose images have the channels last or first.
        action_space: the environment's.
        model_config_dict: options, some or all of :class:`DefaultModelConfig`, and those of a subclass.
    """

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, model_config_dict: Any = None
    ) -> None:
        if is_dataclass(model_config_dict) and not isinstance(model_config_dict, type):
            model_config_dict = asdict(model_config_dict)
        self.observation_space, self.action_space = observation_space, action_space
        self._model_config_dict: dict[str, Any] = asdict(DefaultModelConfig()) | dict(model_config_dict or {})
        self._latent_dims: Any = ()
        self._determine_components_hook()

    @property
    def latent_dims(self) -> Any:
        """Shape of the encoder's output, which heads read. The hook sets it."""
        return self._latent_dims

    @latent_dims.setter
    def latent_dims(self, value: Any) -> None:
        self._latent_dims = value

    def _determine_components_hook(self) -> None:
        """Choose the encoder, and set :attr:`latent_dims`. A subclass may override it."""
        self._encoder_config = self._get_encoder_config(
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config_dict=self._model_config_dict,
        )
        self._action_dist_class_fn = partial(self._get_dist_cls_from_action_space, action_space=self.action_space)
        self.latent_dims = self._encoder_config.output_dims

    @classmethod
    def _get_encoder_config(
        cls,
        observation_space: spaces.Space,
        model_config_dict: dict[str, Any],
        action_space: spaces.Space | None = None,
    ) -> ModelConfig:
        """Returns a perceptron for vectors, convolutions for images, both for the parts of a Dict, and an LSTM behind
        any of them with ``use_lstm``.

        Raises:
            ValueError: another observation space.
        """
        options = model_config_dict
        if options["use_lstm"]:
            return RecurrentEncoderConfig(
                input_dims=observation_space.shape,
                hidden_dim=options["lstm_cell_size"],
                tokenizer_config=cls.get_tokenizer_config(observation_space, options),
                **_initializers(options, "lstm", "hidden"),
            )
        if isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 3:
            return _of_images(observation_space.shape, options)
        if isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 1:
            return _of_vectors(observation_space.shape, options)
        if (shapes := shapes_in(observation_space)) is not None:
            return _of_parts(observation_space, shapes, options)
        raise ValueError(
            f"There is no default encoder for the observation space {observation_space}: it must be a Box, or a Dict "
            "of these. Wrap the environment (gymnasium.wrappers.FlattenObservation), or override _get_encoder_config() "
            f"of {cls.__name__}."
        )

    @classmethod
    def get_tokenizer_config(cls, observation_space: spaces.Space, model_config_dict: dict[str, Any]) -> ModelConfig:
        """Returns the config of the encoder before recurrent layers."""
        return cls._get_encoder_config(
            observation_space=observation_space, model_config_dict={**model_config_dict, "use_lstm": False}
        )

    @classmethod
    def _get_dist_cls_from_action_space(
        cls, action_space: spaces.Space, *, framework: str | None = None
    ) -> type[Distribution] | None:
        """Returns the class of distributions over an action space; ``None`` without a framework.

        Raises:
            ValueError: a Box of integers or of several dimensions.
            NotImplementedError: the space has no distribution.
        """
        if framework is None:
            return None
        check_framework(framework)
        check_action_space(action_space)
        return distribution_for(action_space)

    @staticmethod
    def get_preprocessor(observation_space: spaces.Space, **kwargs: Any) -> Preprocessor:
        """Returns the function that converts an observation to one array. Training does not need it: see
        :mod:`polyak.compat.rllib_face.models.preprocessors`."""
        require(not kwargs.get("options"), "options", kwargs.get("options"), "wrap the environment instead.")
        return get_preprocessor(observation_space)(observation_space)

    def build_encoder(self, framework: str = "torch") -> Any:
        """Returns a new encoder."""
        return self._encoder_config.build(framework)

    def get_action_dist_cls(self, framework: str = "torch") -> Any:
        """Returns the class of distributions over the actions: the result of ``_action_dist_class_fn(framework=...)``,
        if the hook has set one."""
        choose = getattr(self, "_action_dist_class_fn", None)
        if choose is None:  # a hook that sets the encoder alone
            choose = partial(self._get_dist_cls_from_action_space, action_space=self.action_space)
        return choose(framework=framework)

    def _hidden(self) -> tuple[Any, Any]:
        """Widths and activation of the hidden layers of heads."""
        return self._model_config_dict["head_fcnet_hiddens"], self._model_config_dict["head_fcnet_activation"]

    def _head(self, outputs: int, kind: type[MLPHeadConfig] | type[FreeLogStdMLPHeadConfig], **more: Any) -> Any:
        """Returns the config of a head with ``outputs`` outputs and the hidden layers of ``model_config``."""
        options = self._model_config_dict
        widths, activation = self._hidden()
        return kind(
            input_dims=self.latent_dims,
            hidden_layer_dims=widths,
            hidden_layer_activation=activation,
            hidden_layer_use_layernorm=options["head_fcnet_use_layernorm"],
            output_layer_dim=outputs,
            **_initializers(options, "head_fcnet", "hidden_layer"),
            **more,
        )


class HeadConfig:
    """The config of a head, which a method of a catalog makes unless another one was set.

    Args:
        make: the method.
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, catalog: Any, owner: Any = None) -> Any:
        if catalog is None:
            return self
        own = vars(catalog).get(self._name)
        return self._make(catalog) if own is None else own

    def __set__(self, catalog: Any, value: Any) -> None:
        vars(catalog)[self._name] = value


def _initializers(options: Mapping[str, Any], own: str, *layers: str) -> dict[str, Any]:
    """Returns the initializers of some layers, from the options whose names begin with ``own``."""
    return {
        f"{layer}_{part}_initializer{end}": options[f"{own}_{name}_initializer{kwargs}"]
        for layer in layers
        for part, name in (("kernel" if layer == "cnn" else "weights", "kernel"), ("bias", "bias"))
        for end, kwargs in (("", ""), ("_config", "_kwargs"))
    }


def _of_vectors(shape: tuple[int, ...], options: Mapping[str, Any]) -> MLPEncoderConfig:
    *hidden, last = options["fcnet_hiddens"] or (None,)
    return MLPEncoderConfig(
        input_dims=shape,
        hidden_layer_dims=hidden,
        hidden_layer_activation=options["fcnet_activation"],
        hidden_layer_use_layernorm=options["fcnet_use_layernorm"],
        output_layer_dim=last,
        output_layer_activation=options["fcnet_activation"],
        output_layer_use_layernorm=options["fcnet_use_layernorm"],
        **_initializers(options, "fcnet", "hidden_layer", "output_layer"),
    )


def _of_images(shape: tuple[int, ...], options: Mapping[str, Any]) -> CNNEncoderConfig:
    filters = options["conv_filters"] or IMAGES.get(shape[0] if shape[0] == shape[1] else 0)
    squares = ", ".join(map(str, IMAGES))
    fix = f"name the layers for images of shape {shape}: only squares of {squares} pixels have default ones."
    require(filters is not None, "model_config['conv_filters']", options["conv_filters"], fix)
    return CNNEncoderConfig(
        input_dims=shape,
        cnn_filter_specifiers=filters or [],
        cnn_activation=options["conv_activation"],
        **_initializers(options, "conv", "cnn"),
    )


def _of_parts(space: spaces.Space, shapes: Mapping[str, tuple[int, ...]], options: Mapping[str, Any]) -> ModelConfig:
    parts: dict[str, ModelConfig | None] = dict.fromkeys(shapes)
    for name, part in space.spaces.items() if isinstance(space, spaces.Dict) else ():
        if is_image_space(part):
            shape = part.shape
            last = (*shape[1:], shape[0]) if is_image_space_channels_first(part) else shape
            parts[name] = _of_images(last, options)
    width = sum(width_of(shape, parts[name]) for name, shape in shapes.items())
    return NestedEncoderConfig(parts=parts, base_encoder_config=_of_vectors((width,), options))


def _check_if_diag_gaussian(action_distribution_cls: type[Any], framework: str, no_error: bool = False) -> bool:
    """Whether distributions are independent Gaussians.

    Raises:
        HyperparameterError: they are not, unless ``no_error``.
    """
    check_framework(framework)
    gaussian = issubclass(action_distribution_cls, TorchDiagGaussian)
    fix = "only continuous actions have a standard deviation. Leave it out."
    require(gaussian or no_error, "model_config['free_log_std']", True, fix)
    return gaussian


class PPOCatalog(Catalog):
    """Encoder, policy head and value head of an actor-critic.

    Attributes:
        actor_critic_encoder_config: config of the encoder, or of both.
        pi_and_vf_head_hiddens, pi_and_vf_head_activation: widths and activation of the hidden layers of both heads.
    """

    def __init__(self, *spaces: Any, **options: Any) -> None:
        super().__init__(*spaces, **options)
        options = self._model_config_dict
        if "actor_critic_encoder_config" not in vars(self):  # a subclass' hook may have set one
            self.actor_critic_encoder_config: Any = ActorCriticEncoderConfig(
                base_encoder_config=getattr(self, "_encoder_config", None), shared=options["vf_share_layers"]
            )
        self.pi_and_vf_head_hiddens: Any = options["head_fcnet_hiddens"]
        self.pi_and_vf_head_activation: Any = options["head_fcnet_activation"]

    def build_actor_critic_encoder(self, framework: str = "torch") -> Any:
        """Returns a new encoder for both, or one for each in one module."""
        return self.actor_critic_encoder_config.build(framework)

    def build_encoder(self, framework: str = "torch") -> Any:
        raise NotImplementedError("PPO's encoder is built by build_actor_critic_encoder().")

    @HeadConfig
    def pi_head_config(self) -> Any:
        """Returns the config of the policy head: as many outputs as the action distribution reads, unless it was
        set."""
        kind = self.get_action_dist_cls(framework="torch")
        outputs = kind.required_input_dim(space=self.action_space, model_config=self._model_config_dict)
        bound, free = self._model_config_dict["log_std_clip_param"], self._model_config_dict["free_log_std"]
        gaussian = _check_if_diag_gaussian(kind, "torch", no_error=not free)
        head = FreeLogStdMLPHeadConfig if free else MLPHeadConfig
        return self._head(outputs, head, clip_log_std=gaussian, log_std_clip_param=bound)

    @HeadConfig
    def vf_head_config(self) -> Any:
        """Returns the config of the value head: one output, unless it was set."""
        return self._head(1, MLPHeadConfig)

    def _hidden(self) -> tuple[Any, Any]:
        return self.pi_and_vf_head_hiddens, self.pi_and_vf_head_activation

    def build_pi_head(self, framework: str = "torch") -> Any:
        """Returns a new policy head."""
        return self.pi_head_config.build(framework)

    def build_vf_head(self, framework: str = "torch") -> Any:
        """Returns a new value head."""
        return self.vf_head_config.build(framework)


class DQNCatalog(Catalog):
    """Encoder, advantage head and value head of a network of action values.

    ``model_config_dict`` may also hold options of the algorithm: ``num_atoms``, ``dueling``, and ``sigma0`` of noise.
    """

    @property
    def num_atoms(self) -> int:
        """K numbers for each action."""
        return int(self._model_config_dict.get("num_atoms", 1))

    @HeadConfig
    def af_head_config(self) -> Any:
        """Returns the config of the head for the advantages of A actions, or for their values without a value head: K x
        A outputs, unless it was set."""
        if not isinstance(self.action_space, spaces.Discrete):
            raise ValueError(f"action values need a Discrete action space, got {self.action_space}.")
        outputs = self.num_atoms * int(self.action_space.n)
        return self._head(outputs, MLPHeadConfig, sigma0=self._model_config_dict.get("sigma0"))

    @HeadConfig
    def vf_head_config(self) -> Any:
        """Returns the config of the value head: K outputs, unless it was set."""
        return self._head(self.num_atoms, MLPHeadConfig, sigma0=self._model_config_dict.get("sigma0"))

    def build_af_head(self, framework: str = "torch") -> Any:
        """Returns a new head of advantages, or of action values."""
        return self.af_head_config.build(framework)

    def build_vf_head(self, framework: str = "torch") -> Any:
        """Returns a new head of state values, for dueling networks."""
        return self.vf_head_config.build(framework)


DQNRainbowCatalog = DQNCatalog
"""The name in earlier versions of RLlib."""
