"""The builder: a config whose methods set related settings, and that builds an algorithm.

::

    config = PPOConfig().environment("CartPole-v1").training(lr=3e-4)
    algo = config.build_algo()

An unknown name raises an error with the most similar one, and an invalid value raises an error, too.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from enum import Enum
from functools import cache
from itertools import pairwise
from pkgutil import resolve_name
from textwrap import fill
from typing import Any, ClassVar, Literal, NamedTuple

from typing_extensions import Self

from polyak.checkpoint.serialise import encode
from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.config import unread
from polyak.compat.rllib_face.config.clipping import CLIPS
from polyak.compat.rllib_face.config.fixed import To, is_fixed
from polyak.compat.rllib_face.config.settings import GROUPS, TAKES_TOO, AllSettings
from polyak.compat.rllib_face.connectors.actions import ActsByPieces
from polyak.compat.rllib_face.connectors.base import EnvToModulePipeline, ModuleToEnvPipeline
from polyak.compat.rllib_face.connectors.batches import LearnerConnectorPipeline, default_pieces
from polyak.compat.rllib_face.connectors.given import check_connectors, pieces_of
from polyak.compat.rllib_face.filters import MeanStdFilter
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.models.catalog import DefaultModelConfig
from polyak.compat.rllib_face.models.exploration import ActsGreedily
from polyak.compat.sb3_face.overrides import changed, is_ours, refuse
from polyak.hyperparameters.declaration import declared, described, fitted, marked, require
from polyak.hyperparameters.docstrings import sentence
from polyak.learning.learner import Learner
from polyak.schedules import PiecewiseSchedule
from polyak.suggestions import did_you_mean
from polyak.warning import warn_user

HORIZON = 1_000_000
"""Environment steps by which schedules count: they continue past it."""


class Plain(NamedTuple):
    """The equivalent call without the builder: ``algorithm(policy, env, **kwargs)``."""

    algorithm: type[Any]
    policy: Any
    kwargs: dict[str, Any]


class Setters:
    """A method of the builder: its keywords are the settings of one group.

    Args:
        group: name of the method.
        first: the setting that may be given without its name.
        keyword: another name for that one.
    """

    def __init__(self, group: str, first: str | None = None, keyword: str | None = None) -> None:
        self.group, self.first, self.keyword = group, first, keyword

    def __get__(self, instance: Any, owner: Any) -> Any:
        group, first, keyword = self.group, self.first, self.keyword

        def set_some(config: Any, *values: Any, **settings: Any) -> Any:
            if len(values) > (first is not None):
                raise TypeError(f"{group}() takes its settings by name, got {values!r}.")
            if keyword is not None and keyword in settings:
                settings[str(first)] = settings.pop(keyword)
            given = {str(first): value for value in values}
            if twice := given.keys() & settings.keys():
                raise TypeError(f"{group}() got {sorted(twice)[0]!r} twice.")
            return config._put(group, {**given, **settings})

        set_some.__name__ = set_some.__qualname__ = group
        if instance is None:
            set_some.__doc__ = _documentation(owner, group)
            return set_some
        set_some.__doc__ = f"See ``help({owner.__name__}.{group})``."
        return set_some.__get__(instance)


@cache
def _documentation(cls: Any, group: str) -> str:
    """Returns the documentation of a method: each setting with its type, default and sentence."""
    if group not in _METHODS:
        return "Takes settings that nothing here reads, at their defaults alone."
    about = next(part.__doc__ for part in GROUPS if vars(part)["group"] == group)
    default, hints = cls(), declared(cls)
    lines = [f"{about}", "", "Args:"]
    for name in cls._settings_of(group):
        text = f"{name} ({described(hints[name])}, default {getattr(default, name)!r})"
        text += "" if is_fixed(cls, name) else f": {sentence(cls, name)}"
        lines.append(fill(" ".join(text.split()), 100, initial_indent="    ", subsequent_indent="        "))
    return "\n".join(lines)


@dataclass(init=False, repr=False, eq=False)
class AlgorithmConfig(AllSettings):
    """All settings of an algorithm, with its own defaults.

    They are attributes, set by the methods below, whose ``help`` lists the settings. A subclass is the config of one
    algorithm: it adds settings of ``training()`` and translates them in :meth:`plain` to polyak's arguments.
    """

    name: ClassVar[str] = ""
    """The name of the algorithm, for :func:`~polyak.compat.rllib_face.get_trainable_cls`."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults that are the class' own, of settings that are declared above it."""
    own_model_options: ClassVar[Mapping[str, Any]] = {}
    """Defaults of ``model_config`` that are the algorithm's own."""
    in_evaluation: ClassVar[bool] = False
    """Whether it is the config of evaluation."""
    collects: ClassVar[bool] = True
    """Whether experience is collected, and not recorded before."""
    built: ClassVar[str] = "polyak.compat.rllib_face.algorithm:Algorithm"
    """The class of the algorithm that it builds."""
    pieces_see: ClassVar[Literal["rollouts", "batches"] | None] = None
    """The data for pieces of the learner: the episodes of a rollout, or replayed steps; ``None``: neither pieces nor
    learner-only modules are supported."""
    per_module: ClassVar[tuple[str, ...]] = ("gamma", "lr", "grad_clip", "learner_config_dict")
    """The settings that ``algorithm_config_overrides_per_module`` may override: those of losses and optimizers."""
    scales_actions: ClassVar[bool] = True
    """Whether continuous actions are scaled by the environment, since the policy does not squash them itself."""

    environment = Setters("environment", "env")
    env_runners = Setters("env_runners")
    learners = Setters("learners")
    training = Setters("training")
    rl_module = Setters("rl_module")
    evaluation = Setters("evaluation")
    callbacks = Setters("callbacks", "callbacks_class")
    reporting = Setters("reporting")
    debugging = Setters("debugging")
    fault_tolerance = Setters("fault_tolerance")
    api_stack = Setters("api_stack")
    offline_data = Setters("offline_data")
    framework = Setters("framework", "framework_str", "framework")
    multi_agent = Setters("multi_agent")
    checkpointing = Setters("checkpointing")
    resources = Setters("resources")
    python_environment = Setters("python_environment")
    experimental = Setters("experimental")

    def __init__(self, algo_class: Any = None) -> None:
        self.__dict__["_frozen"] = False
        self.__dict__["_given"], self.__dict__["_of_modules"], self.__dict__["_whole"] = set(), {}, self
        for one in fields(self):
            self.__dict__[one.name] = one.default_factory() if callable(one.default_factory) else one.default
        for base in reversed(type(self).__mro__):
            self.__dict__.update(copy.deepcopy(dict(vars(base).get("defaults", {}))))
        self.__dict__["algo_class"] = algo_class

    # -- settings ------------------------------------------------------------------------------------------------------

    @classmethod
    def _settings_of(cls, group: str) -> list[str]:
        """Returns names of the settings of one method, in the order in which they are declared."""
        return [one.name for one in fields(cls) if _group_of(cls, one.name) == group]

    def _put(self, group: str | None, settings: Mapping[str, Any]) -> Self:
        """Set some settings; none, if one of them is invalid."""
        settings = unread.meant(settings, _hints(type(self)), self.name)
        values = {name: self._checked(name, value, group) for name, value in settings.items()}
        for name, value in values.items():
            self._set(name, value)
        return self

    def _set(self, name: str, value: Any) -> None:
        if self._frozen:
            raise AttributeError(f"{name} cannot be set: the config is frozen. Work on config.copy(copy_frozen=False).")
        self.__dict__[name] = value
        self._given.add(name)
        self._of_modules.clear()

    def _checked(self, name: str, value: Any, group: str | None = None) -> Any:
        """Returns a setting's value, after checking name and value.

        Raises:
            TypeError: there is no such setting.
            HyperparameterError: the value is invalid.
        """
        hints = _hints(type(self))
        place = f"{group}()" if group else type(self).__name__
        if name not in hints:
            if name in unread.SETTINGS:
                raise TypeError(f"{place}: nothing here reads {name}={value!r:.80}. Use {unread.SETTINGS[name]}.")
            if group is None and self._may_add(name):
                return value
            known = self._settings_of(group) if group else list(hints)
            hint = did_you_mean(name, known) or did_you_mean(name, hints)
            raise TypeError(f"{place} got an unexpected setting {name!r}.{hint}")
        own = _group_of(type(self), name)
        if group is not None and own != group and name not in TAKES_TOO.get(group, ()):
            raise TypeError(f"{place} got an unexpected setting {name!r}, which {own}() sets.")
        if hasattr(value, "of_one_agent"):
            acting, beside = value.of_one_agent(), value.learner_only()
            fix = f"{self.name} trains no modules that only the learner has: use PPO or DQN."
            require(not beside or self.shown_to_pieces is not None, name, sorted(beside), fix)
            value = value if beside else acting
        if name == "algorithm_config_overrides_per_module" and isinstance(value, Mapping):
            value = {**self.algorithm_config_overrides_per_module, **self._checked_overrides(value)}
        if (places := searched(value)) is not None:
            for place in places:
                fitted(name, place, hints[name])
            return value
        if isinstance(value, Enum):  # such as gymnasium's VectorizeMode.ASYNC
            value = value.value
        if isinstance(value, dict | list):
            value = copy.deepcopy(value) if name in ("env_config", "replay_buffer_config") else copy.copy(value)
        return fitted(name, value, hints[name])

    def _checked_overrides(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns settings of modules by their names, if each may be that and is one that losses and optimizers
        read."""
        for module_id, settings in given.items():
            place = f"algorithm_config_overrides_per_module[{module_id!r}]"
            require(isinstance(settings, Mapping), place, settings, "give AlgorithmConfig.overrides(...).")
            for name, value in settings.items():
                self._checked(name, value)
                fix = f"it is that of the whole algorithm. A module may have its own {', '.join(self.per_module)}."
                require(name in self.per_module, f"{place}[{name!r}]", value, fix)
        return {module_id: dict(settings) for module_id, settings in given.items()}

    def _may_add(self, name: str) -> bool:
        """Whether an attribute can be one that a program's own class adds, and no misspelt setting."""
        slip = get_close_matches(name, _hints(type(self)), 1, 0.85)
        return not type(self).__module__.startswith("polyak.") and not slip

    def __setattr__(self, name: str, value: Any) -> None:
        self.update_from_dict({name: value})

    def __getattr__(self, name: str) -> Any:
        if name in unread.METHODS:
            raise AttributeError(f"{type(self).__name__} has no {name}(). Use {unread.METHODS[name]}.")
        if (default := unread.default_of(name, self.name)) is not None:
            return default
        if name in unread.SETTINGS:
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}. Use {unread.SETTINGS[name]}.")
        hint = did_you_mean(name, [*_hints(type(self)), *_METHODS])
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.{hint}")

    def __getitem__(self, name: str) -> Any:
        if name not in _hints(type(self)):
            raise KeyError(f"{name!r}.{did_you_mean(name, _hints(type(self)))}")
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the setting of that name, or ``default`` if there is none."""
        return getattr(self, name) if name in _hints(type(self)) else default

    def to_dict(self) -> dict[str, Any]:
        """Returns all settings."""
        own = [name for name in self.__dict__ if name not in (*_hints(type(self)), *_INTERNAL)]
        return {name: copy.copy(getattr(self, name)) for name in (*(one.name for one in fields(self)), *own)}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Returns a config with these settings, and the defaults of all others.

        Raises:
            TypeError: there is no such setting; the message names its replacement, or the most similar name.
        """
        return cls().update_from_dict(settings)

    def update_from_dict(self, settings: Mapping[str, Any]) -> Self:
        """Set settings by name, in any group; also everything in RLlib's ``to_dict()``. Entries at RLlib's defaults
        that nothing here reads are left out."""
        return self._put(None, settings)

    @classmethod
    def overrides(cls, **settings: Any) -> dict[str, Any]:
        """Returns settings for ``evaluation_config``, checked.

        Raises:
            TypeError: there is no such setting.
        """
        own = cls()
        return {name: own._checked(name, value) for name, value in settings.items()}

    def copy(self, copy_frozen: bool | None = None) -> Self:
        """Returns another config with the same settings.

        Args:
            copy_frozen: whether it is frozen; ``None``: as this one.
        """
        other = object.__new__(type(self))  # a user's class may have another constructor
        other.__dict__.update(self.__dict__ | self.to_dict())
        other.__dict__.update(_given=set(self._given), _of_modules={}, _whole=other)
        other.__dict__["_frozen"] = self._frozen if copy_frozen is None else bool(copy_frozen)
        return other

    def freeze(self) -> None:
        """Refuse changes from now on."""
        self.__dict__["_frozen"] = True

    @property
    def is_frozen(self) -> bool:
        """Whether changes are refused."""
        frozen: bool = self._frozen
        return frozen

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self._given))
        return f"{type(self).__name__}({changed})"

    def changed(self) -> dict[str, Any]:
        """Returns the settings that were set, as JSON values for a file. A value that cannot be pickled becomes
        ``{"$left_out": words}``."""
        values = {}
        for name in sorted(self._given):
            value = getattr(self, name)
            if name == "model_config" and isinstance(value, DefaultModelConfig):
                value = asdict(value)  # all fields: those at its defaults may differ from an algorithm's defaults
            if name == "rl_module_spec" and hasattr(value, "module_class"):
                value = {key: asdict(v) if isinstance(v, DefaultModelConfig) else v for key, v in vars(value).items()}
            try:
                values[name] = encode(value)
                json.dumps(values[name])
            except Exception:  # pickling may raise anything
                values[name] = {"$left_out": f"{value!r:.200}"}
        return values

    # -- derived values ------------------------------------------------------------------------------------------------

    @property
    def total_train_batch_size(self) -> int:
        """Rows that all learners get at once."""
        if self.train_batch_size_per_learner is None or self._says_total:
            return self.train_batch_size
        return self.train_batch_size_per_learner * max(1, self.num_learners)

    @property
    def _says_total(self) -> bool:
        """Whether ``train_batch_size`` was set, and ``train_batch_size_per_learner`` was not."""
        return "train_batch_size" in self._given and "train_batch_size_per_learner" not in self._given

    def get_rollout_fragment_length(self) -> int:
        """Returns the steps of each environment between two updates of the learner."""
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        environments = self.num_envs_per_env_runner * max(1, self.num_env_runners)
        return -(-self.total_train_batch_size // environments)

    def schedule(self, name: str) -> Any:
        """Returns a setting that may be points [[environment step, value], ...], as polyak has it: a number, or a
        function of the remaining progress of :data:`HORIZON` steps.

        Raises:
            HyperparameterError: they are no such points.
        """
        value = getattr(self, name)
        if not isinstance(value, list | tuple):
            return value
        points = [tuple(point) if isinstance(point, list | tuple) else () for point in value]
        fix = "write [[0, first value], [environment step, value], ...], with steps that grow and values of at least 0."
        require(bool(points) and all(len(point) == 2 for point in points), name, value, fix)
        numbers = all(isinstance(n, int | float) and not isinstance(n, bool) and n >= 0 for p in points for n in p)
        require(numbers, name, value, fix)
        steps = [step for step, _ in points]
        grow = steps[0] == 0 and all(a < b for a, b in pairwise(steps))
        require(grow, name, value, fix)
        return PiecewiseSchedule(tuple((step / HORIZON, float(y)) for step, y in points))

    def plain(self, image_channels_last: bool = False) -> Plain:
        """Translates the settings to polyak's algorithm, policy and keyword arguments. This method translates those of
        a program's own algorithm, with its own learner and training step.

        Args:
            image_channels_last: whether the environment has images with the channels last.

        Raises:
            HyperparameterError: an invalid setting, or two that contradict each other.
        """
        return resolve_name("polyak.compat.rllib_face.config.own:plain_of")(self, image_channels_last)

    # -- overridable ---------------------------------------------------------------------------------------------------

    def get_default_rl_module_spec(self) -> Any:
        """Returns the module that is trained where ``rl_module(rl_module_spec=...)`` names none: an
        :class:`~polyak.compat.rllib_face.RLModuleSpec`, or a :class:`~polyak.compat.rllib_face.MultiRLModuleSpec` of it
        alone."""
        raise NotImplementedError(f"{type(self).__name__} does not say which module it trains.")

    def get_rl_module_spec(self, env: Any = None, spaces: Any = None, inference_only: bool | None = None) -> Any:
        """Returns the given spec merged over :meth:`get_default_rl_module_spec`. Its spaces are filled in when it is
        built."""
        multi = resolve_name("polyak.compat.rllib_face.models.multi")
        default, given = multi.of_one_agent(self.get_default_rl_module_spec()), multi.of_one_agent(self.rl_module_spec)
        values = {} if given is None else {name: value for name, value in vars(given).items() if value}
        options = _merged(default.model_config, self.model_config, values.pop("model_config", None))
        if inference_only is not None:
            values["inference_only"] = inference_only
        found = replace(default, **values, model_config=options)
        known = spaces or {}
        own = next((known[name] for name in (DEFAULT_MODULE_ID, "__env_single__", "__env__") if name in known), None)
        if own is None and env is not None:
            own = self._spaces_of(env, None)
        return found if own is None else found.with_spaces(*own)

    def get_multi_rl_module_spec(
        self, *, env: Any = None, spaces: Any = None, inference_only: bool = False, **kwargs: Any
    ) -> Any:
        """Returns :meth:`get_rl_module_spec` under the name of the only agent, and, unless it is for acting, the
        modules that only the learner has. ``kwargs`` are RLlib's for several agents, which must be ``None``."""
        for name, value in kwargs.items():
            require(value is None, name, value, "algorithms here train one agent. Leave it out.")
        multi = resolve_name("polyak.compat.rllib_face.models.multi")
        specs = {DEFAULT_MODULE_ID: self.get_rl_module_spec(env, spaces, inference_only)}
        default = self.get_default_rl_module_spec()
        beside = {} if inference_only else multi.learner_only(self.rl_module_spec or default)
        for name, spec in beside.items():
            options = _merged(None, self.model_config, spec.model_config)
            if spec.module_class is None:
                own = multi.of_one_agent(default)
                spec = replace(
                    spec, module_class=own.module_class, catalog_class=spec.catalog_class or own.catalog_class
                )
            specs[name] = replace(spec, model_config=options)
        return multi.MultiRLModuleSpec(specs)

    def learner_only_specs(self) -> dict[str, Any]:
        """Name -> spec of the modules that only the learner has."""
        return resolve_name("polyak.compat.rllib_face.models.multi:learner_only")(self.get_multi_rl_module_spec())

    def build_learner_group(
        self, *, env: Any = None, spaces: Any = None, rl_module_spec: Any = None, placement_group: Any = None
    ) -> Any:
        """Builds the learner group of an algorithm, or a :class:`~polyak.compat.rllib_face.LearnerGroup` by itself. A
        subclass may return another class.

        Args:
            env: the environment whose spaces its module gets.
            spaces: ``{"default_policy": (observation space, action space)}``, in place of ``env``.
            rl_module_spec: the module; ``None``: the config's.
            placement_group: RLlib's, which must be ``None``.
        """
        remote = self.num_learners > 0 and self.collects
        name = "processes.learners:RemoteLearners" if remote else "learner_groups:LearnerGroup"
        spec = rl_module_spec or self.get_multi_rl_module_spec(env=env, spaces=spaces)
        kind = resolve_name(f"polyak.compat.rllib_face.{name}")
        return kind(config=self, module_spec=spec, placement_group=placement_group)

    reports: ClassVar[type[Any] | None] = None
    """A mixin for the learner, which reports more metrics."""

    def watched(self, plain: Plain) -> Plain:
        """Returns the result of :meth:`plain` with :attr:`reports` applied."""
        if self.reports is None or issubclass(plain.algorithm.learner_class, self.reports):
            return plain
        return plain._replace(algorithm=with_learner(plain.algorithm, self.reports))

    by_episodes: ClassVar[bool] = False
    """Whether the learner is to be given episodes by a program, and not by a training step here."""

    def get_default_learner_class(self) -> Any:
        """Returns the learner that is taken where ``training(learner_class=...)`` names none."""
        raise NotImplementedError(f"{type(self).__name__} does not say which learner it takes.")

    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
        """Makes new pieces of ``env_to_module_connector``, in an :class:`~polyak.compat.rllib_face.EnvToModulePipeline`
        with their spaces.

        Args:
            env: an object with ``single_observation_space`` and ``single_action_space``; ``None``: those of ``spaces``.
            spaces: ``{"__env_single__": (observation space, action space)}``; ``None``: those of the config.
            device: an argument of the function; the CPU, if ``None``.
        """
        pieces = pieces_of("env_to_module_connector", self.env_to_module_connector, env, spaces, device or "cpu")
        return EnvToModulePipeline(*self._spaces_of(env, spaces), connectors=pieces)

    def build_module_to_env_connector(self, env: Any = None, spaces: Any = None) -> Any:
        """Makes new pieces of ``module_to_env_connector``, in a :class:`~polyak.compat.rllib_face.ModuleToEnvPipeline`
        with their spaces; see :meth:`build_env_to_module_connector`."""
        pieces = pieces_of("module_to_env_connector", self.module_to_env_connector, env, spaces)
        fix = "filters stand in env_to_module_connector."
        require(not any(isinstance(one, MeanStdFilter) for one in pieces), "module_to_env_connector", pieces, fix)
        return ModuleToEnvPipeline(*self._spaces_of(env, spaces), connectors=pieces)

    def _passes_actions(self) -> bool:
        """Whether there are pieces behind the module."""
        own = changed(type(self), AlgorithmConfig, ["build_module_to_env_connector"])
        return self.module_to_env_connector is not None or bool(own)

    def _spaces_of(self, env: Any, spaces: Any) -> tuple[Any, Any]:
        known = getattr(env, "single_observation_space", None), getattr(env, "single_action_space", None)
        observations, actions = (spaces or {}).get("__env_single__", known)
        observations = self.observation_space if observations is None else observations
        return observations, self.action_space if actions is None else actions

    def build_learner_connector(self, input_observation_space: Any, input_action_space: Any, device: Any = None) -> Any:
        """Makes new pieces of ``learner_connector``, followed by RLlib's default ones, in a
        :class:`~polyak.compat.rllib_face.LearnerConnectorPipeline` with their spaces."""
        spaces = input_observation_space, input_action_space
        pieces = pieces_of("learner_connector", self.learner_connector, *spaces)
        return LearnerConnectorPipeline(*spaces, connectors=[*pieces, *default_pieces(device or "cpu")])

    def get_config_for_module(self, module_id: str) -> Self:
        """Returns the settings of a module: these, and over them those of ``algorithm_config_overrides_per_module``."""
        whole: Self = self._whole
        if module_id not in whole.algorithm_config_overrides_per_module:
            return whole
        if module_id not in whole._of_modules:
            other = whole.copy(copy_frozen=False)
            for name, value in whole.algorithm_config_overrides_per_module[module_id].items():
                other._set(name, other._checked(name, value))
            other.__dict__["_whole"], other.__dict__["_frozen"] = whole, whole._frozen
            whole._of_modules[module_id] = other
        found: Self = whole._of_modules[module_id]
        return found

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        """Options of ``model_config`` that the algorithm itself sets, unless they are given."""
        return dict(self.own_model_options)

    def _translated(self) -> dict[str, Any]:
        """Keyword arguments of polyak's algorithm, as far as a setting is one: see
        :class:`~polyak.compat.rllib_face.config.settings.To`."""
        found = {name: self.schedule(setting) for setting, name in _arguments(type(self)).items()}
        rate = found.get("learning_rate", 0.0)
        require(rate is not None, "lr", rate, f"{self.name} has one learning rate: give it.")
        return {
            **found,
            "verbose": {"DEBUG": 2, "INFO": 1}.get(self.log_level, 0),
            "device": f"cuda:{self.local_gpu_idx}" if self.num_gpus_per_learner > 0 else "cpu",
            "compile": self.torch_compile_learner if not self._own_losses() else False,
        }

    def _algorithm(self, algorithm: type[Any]) -> type[Any]:
        """Returns the class, with the learner of ``learner_class`` or :meth:`get_default_learner_class`, and an actor
        that passes actions through the pieces of ``module_to_env_connector``."""
        if self.collects and not self.explore:
            algorithm = type(algorithm.__name__, (ActsGreedily, algorithm), {"__module__": __name__})
        if self._passes_actions():
            algorithm = type(algorithm.__name__, (ActsByPieces, algorithm), {"__module__": __name__})
        if self.grad_clip is not None and self.grad_clip_by != "global_norm":
            return with_learner(self._of_learner(algorithm), CLIPS[self.grad_clip_by])
        return self._of_learner(algorithm)

    def _learner_given(self) -> Any:
        """Returns the learner's class: ``learner_class`` or :meth:`get_default_learner_class`."""
        return self.learner_class or self.get_default_learner_class()

    def _own_losses(self) -> list[str]:
        """Returns the reasons for running gradient steps line by line: a program's own methods of losses, gradients and
        optimizers, the module's own loss, modules that only the learner has."""
        chosen, specs = self._learner_given(), self.get_multi_rl_module_spec()
        loss = "compute_self_supervised_loss"
        own = [loss] if hasattr(specs.of_one_agent().module_class, loss) else []
        own += ["_torch_lr_scheduler_classes"] if self._torch_lr_scheduler_classes else []
        return [*(chosen.own() if is_ours(chosen, TorchLearner) else []), *own, *specs.learner_only()]

    def _has_pieces(self) -> bool:
        """Whether pieces of the learner are given."""
        return self.learner_connector is not None or bool(
            changed(type(self), AlgorithmConfig, ["build_learner_connector"])
        )

    def shows_rollouts(self) -> bool:
        """Whether pieces of the learner, including those that its ``build()`` adds, may need the episodes of
        rollouts."""
        chosen = self._learner_given()
        adds = is_ours(chosen, TorchLearner) and bool(changed(chosen, chosen.face(), ["build"]))
        return self.shown_to_pieces == "rollouts" and (self._has_pieces() or adds)

    @property
    def shown_to_pieces(self) -> str | None:
        """See :attr:`pieces_see`; an algorithm of a program's own learns from episodes."""
        return self.pieces_see if self.name else "rollouts"

    @property
    def steps_itself(self) -> bool:
        """Whether a program's own training step or learner group may give the learner episodes."""
        algorithm = resolve_name("polyak.compat.rllib_face.algorithm:Algorithm")
        own = changed(self.algo_class, algorithm, ["training_step"]) if isinstance(self.algo_class, type) else []
        asked = self.by_episodes or bool(own or changed(type(self), AlgorithmConfig, ["build_learner_group"]))
        return asked and self.shown_to_pieces == "rollouts" and self.num_learners == 0

    def _of_learner(self, algorithm: type[Any]) -> type[Any]:
        own, chosen = algorithm.learner_class, self._learner_given()
        if is_ours(chosen, TorchLearner):
            return self._of_torch_learner(algorithm, chosen)
        fits = isinstance(chosen, type) and issubclass(chosen, own)
        require(fits, "learner_class", chosen, f"give a subclass of {own.__module__}.{own.__qualname__}.")
        refuse("learner_class", chosen, own, not_called.OF["learner"])
        face = self.get_default_learner_class()
        fix = f"its steps read no losses and columns of modules: give a subclass of {getattr(face, '__name__', face)}."
        plainly = self._own_losses() or (self.shown_to_pieces == "batches" and self._has_pieces())
        require(not plainly, "learner_class", chosen, fix)
        if self._has_pieces():
            return with_learner(algorithm, type(chosen.__name__, (face, chosen), self._members()))
        return algorithm if chosen is own else with_learner(algorithm, chosen)

    def _of_torch_learner(self, algorithm: type[Any], chosen: type[TorchLearner]) -> type[Any]:
        """Returns the class with a learner of RLlib's API, which gets this config."""
        face = chosen.face()
        kinds = [base for base in face.__mro__ if issubclass(base, Learner) and not issubclass(base, TorchLearner)]
        fits = issubclass(algorithm.learner_class, kinds[0]) and (kinds[0] is not Learner or not self.name)
        wanted = f"give a subclass of that of {self.name}."
        require(fits, "learner_class", chosen, wanted)
        if chosen is face and not self._own_losses() and not self._has_pieces() and not self.steps_itself:
            return algorithm
        refuse("learner_class", chosen, face, {**not_called.OF["torch_learner"], **face.reasons})
        fix = "a learner of one's own learns in this process: set num_learners=0."
        require(self.num_learners == 0, "num_learners", self.num_learners, fix)
        bases = (chosen,) if issubclass(chosen, algorithm.learner_class) else (chosen, algorithm.learner_class)
        return with_learner(algorithm, type(chosen.__name__, bases, self._members()))

    def _members(self) -> dict[str, Any]:
        """Returns the attributes of a learner's class."""
        return {"config": self._whole, "__module__": __name__}

    def validate(self) -> None:
        """Refuse settings that contradict each other, without an environment.

        Raises:
            HyperparameterError: two settings contradict each other, or a subclass has a method that nothing calls; the
                message names value and fix.
        """
        refuse("config", type(self), AlgorithmConfig, not_called.OF["config"])
        for name in sorted(self._given):
            fix = "Only ray.tune.Tuner(trainable, param_space=config) chooses from it. Set a value."
            require(searched(getattr(self, name)) is None, name, getattr(self, name), fix)
        agree = "train_batch_size" not in self._given or self.train_batch_size == self.total_train_batch_size
        fix = f"train_batch_size_per_learner={self.train_batch_size_per_learner} says otherwise. Give one of them."
        require(agree, "train_batch_size", self.train_batch_size, fix)
        needs = self.evaluation_num_env_runners > 0 or not self.evaluation_parallel_to_training
        fix = "nothing would do so: set evaluation_num_env_runners to at least 1."
        require(needs, "evaluation_parallel_to_training", True, fix)
        fix = "only what runs beside training can last as long: set evaluation_parallel_to_training, or a number."
        lasts = self.evaluation_duration != "auto" or self.evaluation_parallel_to_training
        require(lasts, "evaluation_duration", self.evaluation_duration, fix)
        fix = "a function of one's own evaluates in this process: set evaluation_num_env_runners=0."
        alone = self.custom_evaluation_function is None or self.evaluation_num_env_runners == 0
        require(alone, "custom_evaluation_function", self.custom_evaluation_function, fix)
        if self.log_gradients:
            warn_user("log_gradients=True: norms of gradients are not among the results here.")
        check_connectors(self, AlgorithmConfig)
        self.evaluation_settings()
        modules = list(self.get_multi_rl_module_spec().named()) if self.algorithm_config_overrides_per_module else []
        for name, settings in self.algorithm_config_overrides_per_module.items():
            place = f"algorithm_config_overrides_per_module[{name!r}]"
            require(name in modules, place, settings, f"the modules are {modules}.")
        algorithm, policy, kwargs = self.get_config_for_module(DEFAULT_MODULE_ID).plain()
        checked = {name: value for name, value in kwargs.items() if name not in ("policy_kwargs", "device")}
        algorithm(policy, None, **checked, _init_setup_model=False)

    def evaluation_settings(self) -> Self:
        """Returns the config of evaluation: this one, but for ``evaluation_config``.

        Raises:
            HyperparameterError: it has a setting that evaluation does not read.
        """
        given = self.evaluation_config
        given = given.changed_values() if isinstance(given, AlgorithmConfig) else given or {}
        require(isinstance(given, Mapping), "evaluation_config", given, "give a dict of settings.")
        read = ("explore", "env", "env_config", "num_envs_per_env_runner", "gym_env_vectorize_mode", "clip_rewards")
        other = self.copy(copy_frozen=False)
        other.__dict__["in_evaluation"] = True
        for name, value in given.items():
            fix = f"evaluation reads only {', '.join(read)}.{did_you_mean(name, read)}"
            require(name in read, f"evaluation_config[{name!r}]", value, fix)
            other._set(name, self._checked(name, value))
        return other

    def changed_values(self) -> dict[str, Any]:
        """Returns the settings that were set."""
        return {name: getattr(self, name) for name in self._given}

    # -- building ------------------------------------------------------------------------------------------------------

    def build_algo(self, env: Any = None, *, use_copy: bool = True) -> Any:
        """Build the algorithm: make the environments, seed everything, make the networks.

        Args:
            env: replaces ``environment(env)``.
            use_copy: freeze a copy; ``False`` freezes this config itself.

        Returns:
            an :class:`~polyak.compat.rllib_face.Algorithm`.

        Raises:
            HyperparameterError: an invalid setting, or two that contradict each other.
            NotThereYetError: processes that are not supported.
        """
        config = self.copy(copy_frozen=False) if use_copy else self
        if env is not None:
            config.env = env
        return config._algo_class()(config)

    build = build_algo

    def _algo_class(self) -> Any:
        return self.algo_class or resolve_name("polyak.compat.rllib_face.trainables:get_trainable_cls")(self.name)


def with_learner(algorithm: type[Any], *learner: type[Any]) -> type[Any]:
    """Returns the algorithm with another learner, or with its own behind the classes given."""
    own = algorithm.learner_class
    if not issubclass(learner[0], own):
        learner = (type(own.__name__, (*learner, own), {"__module__": __name__}),)
    return type(algorithm.__name__, (algorithm,), {"learner_class": learner[0], "__module__": __name__})


def _merged(default: Any, given: Any, of_spec: Any) -> Any:
    """Options of ``model_config``: those of the default spec, over them those given, over them those of the spec."""
    found = [part for part in (default, given, of_spec) if part]
    if len(found) < 2:
        return found[0] if found else None
    merged: dict[str, Any] = {}
    for part in found:
        merged |= part if isinstance(part, Mapping) else vars(part)
    return merged


def searched(value: Any) -> list[Any] | None:
    """Returns the values of a search space of Ray Tune, as far as they are listed; ``None`` for any other value."""
    if isinstance(value, dict) and list(value) == ["grid_search"]:
        return list(value["grid_search"])
    return [] if type(value).__module__.startswith("ray.tune.search.") else None


_METHODS = [vars(group)["group"] for group in GROUPS]
_INTERNAL = ("_frozen", "_given", "_of_modules", "_whole", "algo_class", "in_evaluation")
"""Internal attributes of a config."""


_hints: Callable[[Any], Mapping[str, Any]] = cache(declared)
"""Settings of a class of configs and their annotations, which take a while to read."""


def _read_arguments(cls: Any) -> dict[str, str]:
    marks = {name: marked(cls, name, To) for name in _hints(cls)}
    return {name: mark.argument for name, mark in marks.items() if mark is not None and mark.argument}


_arguments: Callable[[Any], Mapping[str, str]] = cache(_read_arguments)
"""Setting of a class of configs -> keyword argument of polyak's algorithm, of those that are one."""


def _group_of(cls: type, name: str) -> str:
    """Returns the method that sets a setting: that of the class which first declared it; an algorithm's own:
    training()."""
    owner = next(base for base in reversed(cls.__mro__) if name in inspect.get_annotations(base))
    group: str = vars(owner).get("group", "training")
    return group
