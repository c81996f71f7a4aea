"""Modules: the networks of one agent with RLlib's API, which map dicts to dicts.

A subclass of :class:`TorchRLModule` makes its layers in ``setup()`` and writes ``_forward(batch)``, which returns
``{"action_dist_inputs": [B, N]}``. To be trained by PPO it also writes ``compute_values(batch)`` [B], by DQN
``compute_q_values(batch)``. This file does not depend on algorithms; :mod:`polyak.compat.rllib_face.models.parts` lets
polyak's algorithms train modules.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import safetensors.torch
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import Self

from polyak.checkpoint.arrays import read_arrays, warn_not_finite
from polyak.checkpoint.building import no_larger_than
from polyak.checkpoint.damage import damage_named
from polyak.checkpoint.parameters import as_named_now
from polyak.checkpoint.serialise import decode, encode, find_class
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.models.distributions import distribution_for
from polyak.compat.rllib_face.models.torch_distributions import Distribution
from polyak.envs.reading import plain_json
from polyak.hyperparameters.declaration import require
from polyak.nn.compiled import keep_plain_names, plain_name
from polyak.writing import replacing

Batch = dict[str, Any]
"""Tensors by column."""
STATE_FILE, DESCRIPTION = "module_state.safetensors", "module.json"


@dataclass
class TorchCompileConfig:
    """The arguments of ``torch.compile`` in :meth:`TorchRLModule.compile`."""

    torch_dynamo_backend: Any = "aot_eager" if sys.platform == "darwin" else "cudagraphs"
    torch_dynamo_mode: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Further keyword arguments."""


@runtime_checkable
class ValueFunctionAPI(Protocol):
    """A module that computes state values."""

    def compute_values(self, batch: Batch, embeddings: Any = None) -> Tensor:
        """State values [B]; ``embeddings``: as ``forward_train`` returned them, to spare the encoder."""


@runtime_checkable
class QNetAPI(Protocol):
    """A module that computes action values."""

    def compute_q_values(self, batch: Batch) -> dict[str, Tensor]:
        """Returns ``qf_preds`` [B, A]; for distributions also ``atoms`` [K], ``qf_logits`` and ``qf_probs`` [B, A,
        K]."""


@runtime_checkable
class TargetNetworkAPI(Protocol):
    """A module with lagging copies of some of its networks."""

    def make_target_networks(self) -> None:
        """Make them."""

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Networks and their copies."""

    def forward_target(self, batch: Batch) -> dict[str, Any]:
        """Returns the outputs of the target networks."""


@runtime_checkable
class InferenceOnlyAPI(Protocol):
    """A module that acts with a part of its networks."""

    def get_non_inference_attributes(self) -> list[str]:
        """Returns names of the attributes that only learning needs."""


@runtime_checkable
class SelfSupervisedLossAPI(Protocol):
    """A module with its own loss, in place of the learner's."""

    def compute_self_supervised_loss(
        self, *, learner: Any, module_id: str, config: Any, batch: Batch, fwd_out: Batch, **kwargs: Any
    ) -> Tensor:
        """Returns the loss [], from the arguments of :meth:`TorchLearner.compute_loss_for_module` and the learner."""


class RLModule:
    """The networks of an agent.

    Args:
        observation_space: the environment's observation space.
        action_space: the environment's action space.
        inference_only: build only the parts that acting needs.
        learner_only: whether the module never acts.
        model_config: options for :meth:`setup`, under ``self.model_config``.
        catalog_class: builds default parts from spaces and options, under ``self.catalog``.
    """

    framework: ClassVar[str | None] = None
    default_catalog: ClassVar[Any] = None
    """The class that builds parts without a ``catalog_class``."""
    STATE_FILE_NAME: ClassVar[str] = STATE_FILE
    """The file in a folder of :meth:`TorchRLModule.save_to_path` that has the weights."""

    def __init__(
        self,
        *,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        inference_only: bool = False,
        learner_only: bool = False,
        model_config: Any = None,
        catalog_class: Any = None,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.inference_only, self.learner_only = bool(inference_only), learner_only
        self.model_config = {} if model_config is None else model_config
        self.catalog = None
        catalog_class = catalog_class or self.default_catalog
        if catalog_class is not None:
            self.catalog = catalog_class(
                observation_space=observation_space, action_space=action_space, model_config_dict=self.model_config
            )
        self.action_dist_cls: type[Distribution] | None = None
        self.setup()

    def setup(self) -> None:
        """Make networks; called once, at the end of the constructor."""

    def get_initial_state(self) -> dict[str, Any]:
        """Returns its recurrent state at the start of an episode; empty by default."""
        return {}

    def is_stateful(self) -> bool:
        """Whether it is recurrent."""
        return bool(self.get_initial_state())

    # -- forward passes ------------------------------------------------------------------------------------------------

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        """Returns the forward pass, where a subclass does not distinguish them."""
        raise NotImplementedError(f"{type(self).__name__} must write _forward(batch).")

    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        """Computes the outputs for acting without exploration."""
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: Batch, **kwargs: Any) -> Batch:
        """Computes the outputs for acting while experience is collected."""
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        """Computes the outputs for losses."""
        return self._forward(batch, **kwargs)

    def forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        """Call :meth:`_forward_inference`."""
        return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: Batch, **kwargs: Any) -> Batch:
        """Call :meth:`_forward_exploration`."""
        return self._forward_exploration(batch, **kwargs)

    def forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        """Call :meth:`_forward_train`.

        Raises:
            RuntimeError: the module was built for acting alone.
        """
        if self.inference_only:
            raise RuntimeError("forward_train() needs a module built with inference_only=False.")
        return self._forward_train(batch, **kwargs)

    # -- distributions -------------------------------------------------------------------------------------------------

    def get_inference_action_dist_cls(self) -> type[Distribution]:
        """Returns the class of distributions for acting without exploration: ``self.action_dist_cls`` if :meth:`setup`
        has set one, else the catalog's, else that of the space."""
        if self.action_dist_cls is not None:
            return self.action_dist_cls
        if self.catalog is not None:
            found: type[Distribution] = self.catalog.get_action_dist_cls(framework="torch")
            return found
        require(self.action_space is not None, "action_space", None, "give the module an action space.")
        return distribution_for(self.action_space)  # type: ignore[arg-type]

    def get_exploration_action_dist_cls(self) -> type[Distribution]:
        """Returns the class of distributions for acting while experience is collected."""
        return self.get_inference_action_dist_cls()

    def get_train_action_dist_cls(self) -> type[Distribution]:
        """Returns the class of distributions for losses."""
        return self.get_inference_action_dist_cls()

    def _says_nothing(self) -> None:
        """Returns column names, in earlier versions of RLlib. Nothing reads them; a subclass may define it."""

    input_specs_inference = input_specs_exploration = input_specs_train = _says_nothing
    output_specs_inference = output_specs_exploration = output_specs_train = _says_nothing

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of the constructor that make another one like it."""
        named = ("observation_space", "action_space", "inference_only", "learner_only", "model_config")
        catalog_class = None if self.catalog is None else type(self.catalog)
        return (), {name: getattr(self, name) for name in named} | {"catalog_class": catalog_class}

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_state(
        self, components: Any = None, *, not_components: Any = None, inference_only: bool = False
    ) -> dict[str, np.ndarray]:
        """Returns the learned tensors as arrays, by name."""
        raise NotImplementedError

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned."""
        raise NotImplementedError

    @classmethod
    def from_checkpoint(cls, path: Any) -> Any:
        """Returns the module in a folder, or the modules of several: see :meth:`TorchRLModule.from_checkpoint`."""
        if (Path(path) / DESCRIPTION).is_file():
            return TorchRLModule.from_checkpoint(path)
        return resolve_name("polyak.compat.rllib_face.models.multi:MultiRLModule").from_checkpoint(path)

    def as_multi_rl_module(self) -> Any:
        """Returns a :class:`~polyak.compat.rllib_face.MultiRLModule` with this one alone, as that of the only agent."""
        return resolve_name("polyak.compat.rllib_face.models.multi:MultiRLModule")({DEFAULT_MODULE_ID: self})

    def unwrapped(self) -> RLModule:
        """Returns the module itself."""
        return self


class TorchRLModule(nn.Module, RLModule):
    """A module of torch. Its arguments are those of :class:`RLModule`."""

    framework: ClassVar[str | None] = "torch"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        keep_plain_names(self)
        RLModule.__init__(self, *args, **kwargs)
        names = self._only_learned()
        named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        require(named, "get_non_inference_attributes()", names, "let it return a list of names of attributes.")
        if self.inference_only:
            for name in names:
                owner, _, last = name.rpartition(".")
                part = self.get_submodule(owner)
                if getattr(part, last, None) is not None:
                    setattr(part, last, None)

    def _only_learned(self) -> list[str]:
        """Returns the names of parts that acting does not need."""
        return self.get_non_inference_attributes() if isinstance(self, InferenceOnlyAPI) else []

    @torch.no_grad()
    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        return self._forward(batch, **kwargs)

    @torch.no_grad()
    def _forward_exploration(self, batch: Batch, **kwargs: Any) -> Batch:
        return self._forward(batch, **kwargs)

    def compile(self, compile_config: TorchCompileConfig) -> Any:
        """Compile the forward passes of a module by itself. Algorithms compile whole gradient steps instead.

        Returns:
            the module.
        """
        how = {"backend": compile_config.torch_dynamo_backend, "mode": compile_config.torch_dynamo_mode}
        for name in ("_forward_train", "_forward_inference", "_forward_exploration"):
            setattr(self, name, torch.compile(getattr(self, name), **how, **compile_config.kwargs))
        return self

    def __getattr__(self, name: str) -> Any:
        if name in REPLACED:
            raise AttributeError(f"{type(self).__name__} has no {name}. Use {REPLACED[name]}.")
        return super().__getattr__(name)

    def forward(self, batch: Batch, **kwargs: Any) -> Batch:
        """Calls :meth:`forward_train`."""
        return self.forward_train(batch, **kwargs)

    def _tensors(self) -> dict[str, Tensor]:
        """Returns its parameters and buffers, not copies of them."""
        found: dict[str, Tensor] = self.state_dict()
        return found

    def get_state(
        self, components: Any = None, *, not_components: Any = None, inference_only: bool = False
    ) -> dict[str, np.ndarray]:
        """Returns arrays of parameters and buffers, by name.

        Args:
            components: names of parts, such as ``"encoder"``, or one of them; ``None``: all.
            not_components: names of parts to leave out.
            inference_only: leave out parts that acting does not need.
        """
        left_out = [*_names(not_components), *(self._only_learned() if inference_only else [])]
        return {
            name: tensor.numpy(force=True).copy()
            for name, tensor in self._tensors().items()
            if (components is None or _within(name, _names(components))) and not _within(name, left_out)
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned; missing names keep their values. A module that was built for
        acting alone takes its part of a learning module's state.

        Raises:
            ValueError: a name that the module does not have, or another shape; nothing is changed then.
        """
        own = self._tensors()
        state = as_named_now({plain_name(name): value for name, value in state.items()}, own)
        if self.inference_only:
            state = {name: value for name, value in state.items() if name in own}
        wrong = [name for name, value in state.items() if name not in own or own[name].shape != np.shape(value)]
        if wrong:
            raise ValueError(f"state does not fit {type(self).__name__}: it has no such tensors as {sorted(wrong)}.")
        with torch.no_grad():
            for name, value in state.items():
                own[name].copy_(torch.as_tensor(np.array(value) if isinstance(value, np.ndarray) else value))

    # -- files ---------------------------------------------------------------------------------------------------------

    def save_to_path(self, path: Any) -> str:
        """Write the module into a folder: its description as JSON, its weights as safetensors.

        Returns:
            the folder.

        Raises:
            ValueError: a file cannot name its class or one of its options.
        """
        folder = Path(path)
        description = {"format": "polyak-rl-module", "format_version": 1, **self._described()}
        with replacing(folder / DESCRIPTION) as file:
            file.write(json.dumps(description, indent=1, allow_nan=False).encode())
        with replacing(folder / STATE_FILE) as file:
            file.write(safetensors.torch.save({k: v.contiguous().clone() for k, v in self.state_dict().items()}))
        return str(folder)

    def restore_from_path(self, path: Any) -> None:
        """Take the weights that :meth:`save_to_path` wrote of a module like this one.

        Raises:
            ValueError: they are damaged, or do not fit. Nothing has changed then.
        """
        self.set_state(read_state(path))

    def _described(self) -> dict[str, Any]:
        values = {"module_class": type(self), **self.get_ctor_args_and_kwargs()[1]}
        values.pop("learner_only", None)
        encoded = {name: encode(value) for name, value in values.items()}
        for name, value in encoded.items():
            named = "$pickle" not in json.dumps(value)
            fix = "a file can only name classes of modules that can be imported. Move it out of the function it is in."
            require(named, name, values[name], fix)
        return encoded

    @classmethod
    def from_checkpoint(cls, path: Any) -> TorchRLModule:
        """Build a module from a folder that :meth:`save_to_path` wrote. This runs no code of the folder; the class must
        be imported already.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: it is damaged, or names an unknown class.
        """
        folder = Path(path)
        if not (folder / DESCRIPTION).is_file():
            raise FileNotFoundError(
                f"path={str(path)!r}: there is no {DESCRIPTION} in it, which save_to_path() writes."
            )
        with damage_named(path):
            described = plain_json.parse_object((folder / DESCRIPTION).read_bytes(), DESCRIPTION)
            named = {k: v["$class"] for k, v in described.items() if isinstance(v, dict) and "$class" in v}
            values = {k: find_class(named[k]) if k in named else decode(v) for k, v in described.items()}
            module_class = values.pop("module_class")
            if not issubclass(module_class, TorchRLModule):
                raise ValueError(f"its module_class is {module_class.__name__}, which is no RLModule.")
            options = {k: v for k, v in values.items() if k not in ("format", "format_version")}
            state = read_state(folder)
            with no_larger_than(state.values(), options):
                module = module_class(**options)
            module.set_state(state)
        return module


REPLACED = {
    "config": "its attributes observation_space, action_space, inference_only, learner_only, model_config and catalog",
    "as_multi_agent": "as_multi_rl_module()",
    "save_state": "save_to_path(path)",
    "load_state": "restore_from_path(path)",
    "save_to_checkpoint": "save_to_path(path)",
}
"""Names that RLlib had in earlier versions, with their replacements."""


def _names(given: Any) -> list[str]:
    """Returns a list of names of parts; a single name may be given by itself."""
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def _within(name: str, parts: list[str]) -> bool:
    """Whether a tensor of that name belongs to one of some parts."""
    return any(name == part or name.startswith(part + ".") for part in parts)


def read_state(path: Any) -> dict[str, Tensor]:
    """Reads the weights that :meth:`TorchRLModule.save_to_path` wrote into a folder.

    Raises:
        HyperparameterError: the folder has no weights.
        ValueError: they are damaged.
    """
    file = Path(path) / STATE_FILE
    require(file.is_file(), "load_state_path", str(path), f"there is no {STATE_FILE} in it.")
    arrays = read_arrays(file.read_bytes(), str(file))
    warn_not_finite(arrays, str(file))
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@dataclass
class RLModuleSpec:
    """The specification of a module; the algorithm fills in missing entries."""

    module_class: type[RLModule] | None = None
    observation_space: spaces.Space | None = None
    action_space: spaces.Space | None = None
    inference_only: bool = False
    learner_only: bool = False
    model_config: Any = None
    catalog_class: Any = None
    load_state_path: Any = None
    """A folder of :meth:`TorchRLModule.save_to_path`, whose weights the new module gets."""

    def build(self) -> Any:
        """Returns a new module.

        Raises:
            HyperparameterError: no class.
        """
        is_class = isinstance(self.module_class, type) and issubclass(self.module_class, RLModule)
        require(is_class, "module_class", self.module_class, "give a subclass of TorchRLModule.")
        assert self.module_class is not None
        own = ("module_class", "load_state_path")
        module = self.module_class(**{name: value for name, value in vars(self).items() if name not in own})
        if self.load_state_path is not None:
            module.set_state(read_state(self.load_state_path))
        return module

    def with_spaces(self, observation_space: spaces.Space, action_space: spaces.Space) -> Self:
        """Returns the spec with these spaces in place of missing ones."""
        own = self.observation_space, self.action_space
        seen, chosen = (
            given if one is None else one for one, given in zip(own, (observation_space, action_space), strict=True)
        )
        return replace(self, observation_space=seen, action_space=chosen)

    @classmethod
    def from_module(cls, module: Any) -> Self:
        """Returns the spec of a module."""
        return cls(type(module), **module.get_ctor_args_and_kwargs()[1])


def as_images(batch: Batch) -> Batch:
    """Returns ``batch`` with observations in the form of networks: bytes of images divided by 255, others as
    float32."""
    observations = batch[Columns.OBS]
    if not isinstance(observations, Tensor) or observations.dtype == torch.float32:
        return batch
    scale = 255.0 if observations.dtype == torch.uint8 and observations.ndim >= 4 else 1.0
    return {**batch, Columns.OBS: observations.float() / scale}
