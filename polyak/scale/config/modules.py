"""From ``model_config`` and ``rl_module_spec`` to a policy and its keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyak.core.hyperparameters import require
from polyak.scale.models.catalog import DefaultModelConfig, check_model_config
from polyak.scale.models.rl_module import RLModuleSpec, TorchRLModule

if TYPE_CHECKING:
    from polyak.scale.config.base import AlgorithmConfig


class Networks:
    """What a config says of networks.

    Args:
        config: whose settings they are.
        module_class: the algorithm's default module.
        catalog_class: the algorithm's default catalog.

    Raises:
        HyperparameterError: a class that is none of the kind, an unknown option, or two that contradict each other.
    """

    def __init__(self, config: AlgorithmConfig, module_class: Any, catalog_class: Any) -> None:
        spec = config.rl_module_spec
        fix = "give an RLModuleSpec, such as RLModuleSpec(catalog_class=MyCatalog)."
        require(isinstance(spec, RLModuleSpec | None), "rl_module_spec", spec, fix)
        self.spec: RLModuleSpec = spec or RLModuleSpec()
        for name in ("inference_only", "learner_only", "observation_space", "action_space"):
            fix = "it is filled in by what is built. Leave it out."
            require(not getattr(self.spec, name), f"rl_module_spec.{name}", getattr(self.spec, name), fix)
        self.module_class = self.spec.module_class or module_class
        is_module = isinstance(self.module_class, type) and issubclass(self.module_class, TorchRLModule)
        fix = "give a subclass of TorchRLModule."
        require(is_module, "rl_module_spec.module_class", self.module_class, fix)
        self.is_default = issubclass(self.module_class, module_class)
        self.catalog_class = self.spec.catalog_class or (catalog_class if self.is_default else None)
        is_catalog = not self.is_default or (
            isinstance(self.catalog_class, type) and issubclass(self.catalog_class, catalog_class)
        )
        fix = f"the default module is built by a subclass of {catalog_class.__name__}."
        require(is_catalog, "rl_module_spec.catalog_class", self.catalog_class, fix)
        given = config.model_config or self.spec.model_config or {}
        both = bool(config.model_config) and bool(self.spec.model_config)
        fix = "rl_module(model_config=...) is given, too. Leave one of them out."
        require(not both, "rl_module_spec.model_config", self.spec.model_config, fix)
        self.given: Mapping[str, Any] = vars(given) if isinstance(given, DefaultModelConfig) else given
        self.options: Any = check_model_config(given, **config.own_model_options) if self.is_default else given

    def policy_kwargs(self, turned: bool) -> dict[str, Any]:
        """Keyword arguments that every policy of a module takes."""
        named = {"module_class": self.module_class, "catalog_class": self.catalog_class}
        return {**named, "model_config": self.options, "turned": turned}

    @property
    def remembers(self) -> bool:
        """Whether the default module is asked for a memory."""
        return self.is_default and bool(self.options["use_lstm"])
