"""The translation of ``model_config`` and ``rl_module_spec`` to a policy and its keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.models.catalog import Catalog, check_model_config
from polyak.compat.rllib_face.models.multi import of_one_agent
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec, TorchRLModule
from polyak.compat.sb3_face.overrides import refuse
from polyak.hyperparameters.declaration import require

if TYPE_CHECKING:
    from polyak.compat.rllib_face.config.base import AlgorithmConfig


class Networks:
    """A config's settings of networks, merged over its ``get_default_rl_module_spec()``.

    Args:
        config: the config.
        module_class: the algorithm's default module.
        builds: the methods of a catalog that the default module calls.
        reasons: the methods that nothing calls: see :mod:`polyak.compat.rllib_face.not_called`.

    Raises:
        HyperparameterError: a class of another kind, an unknown option, or two that contradict each other.
    """

    def __init__(
        self, config: AlgorithmConfig, module_class: Any, builds: Sequence[str], reasons: Mapping[str, str]
    ) -> None:
        given = of_one_agent(config.rl_module_spec)
        fix = "give an RLModuleSpec, such as RLModuleSpec(catalog_class=MyCatalog)."
        require(isinstance(given, RLModuleSpec | None), "rl_module_spec", given, fix)
        if given is not None:
            for name in ("inference_only", "learner_only", "observation_space", "action_space"):
                fix = "it is filled in by what is built. Leave it out."
                require(not getattr(given, name), f"rl_module_spec.{name}", getattr(given, name), fix)
            both = bool(config.model_config) and bool(given.model_config)
            fix = "rl_module(model_config=...) is given, too. Leave one of them out."
            require(not both, "rl_module_spec.model_config", given.model_config, fix)
        default = module_class.default_catalog or Catalog
        self.spec: RLModuleSpec = config.get_multi_rl_module_spec().of_one_agent()
        if given is not None:
            refuse("rl_module_spec", type(given), RLModuleSpec, not_called.OF["spec"])
        self.module_class = self.spec.module_class
        is_module = isinstance(self.module_class, type) and issubclass(self.module_class, TorchRLModule)
        fix = "give a subclass of TorchRLModule."
        require(is_module, "rl_module_spec.module_class", self.module_class, fix)
        assert self.module_class is not None
        refuse("rl_module_spec.module_class", self.module_class, TorchRLModule, not_called.OF["module"])
        self.is_default = issubclass(self.module_class, module_class)
        self.catalog_class = self.spec.catalog_class
        names_catalog = given is not None and given.catalog_class is not None
        said = of_one_agent(config.get_default_rl_module_spec()).module_class
        if not self.is_default and not names_catalog and said is not self.module_class:
            self.catalog_class = None  # the default module's is not that of another one
        lacks = [name for name in builds if not hasattr(self.catalog_class, name)] if self.is_default else []
        fix = (
            f"the default module calls its {', '.join(builds)}, of which it lacks {lacks}: subclass {default.__name__}."
        )
        require(not lacks, "rl_module_spec.catalog_class", self.catalog_class, fix)
        if isinstance(self.catalog_class, type):
            derived = self.is_default and issubclass(self.catalog_class, default)
            uncalled = reasons if derived else not_called.OF["preprocessor"]
            refuse("rl_module_spec.catalog_class", self.catalog_class, default if derived else Catalog, uncalled)
        self.given: Mapping[str, Any] = _entries(self.spec.model_config)
        own = not all(
            str(cls.__module__).startswith("polyak.") for cls in (self.module_class, self.catalog_class or type(self))
        )
        defaults = config._model_config_auto_includes
        self.options: Any = self.spec.model_config or {}
        if self.is_default:
            self.options = check_model_config(self.given, own, **defaults)
        elif isinstance(self.options, Mapping):
            self.options = {**{k: v for k, v in defaults.items() if k not in config.own_model_options}, **self.options}

    def policy_kwargs(self, turned: bool) -> dict[str, Any]:
        """Keyword arguments that every policy of a module takes."""
        named = {"module_class": self.module_class, "catalog_class": self.catalog_class}
        return {**named, "model_config": self.options, "turned": turned}

    @property
    def is_recurrent(self) -> bool:
        """Whether the default module is recurrent."""
        return self.is_default and bool(self.options["use_lstm"])


def _entries(options: Any) -> Mapping[str, Any]:
    """Returns the entries of ``model_config``, by name."""
    if options is None or isinstance(options, Mapping):
        return options or {}
    return vars(options)
