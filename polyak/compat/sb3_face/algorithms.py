"""Stable-Baselines3's algorithm classes: polyak's own, with its positional order and the hooks of its subclasses.

An algorithm that a user writes on top of :class:`BaseAlgorithm`, :class:`OnPolicyAlgorithm` or
:class:`OffPolicyAlgorithm` brings its own ``train``; its policy brings the optimizer.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from gymnasium import spaces
from torch.optim import Optimizer
from typing_extensions import Self

from polyak.algorithm import Algorithm
from polyak.algorithms import a2c, ars, crossq, ddpg, dqn, maskable_ppo, ppo, qrdqn, recurrent_ppo, sac, td3, tqc, trpo
from polyak.algorithms.ppo import Epochs
from polyak.algorithms.trpo import TrustRegion
from polyak.arrays import Flags, Memory
from polyak.callbacks.callback import BaseCallback, MaybeCallback
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.collection import Collection
from polyak.checkpoint.damage import names_file
from polyak.checkpoint.parameters import parameters
from polyak.checkpoint.saved import Saved
from polyak.checkpoint.serialise import is_plain, warn_untrusted
from polyak.collecting.actor import Actor
from polyak.collecting.exploration import Exploration
from polyak.collecting.runner import Acted, Acting, Runner
from polyak.collecting.train_freq import RolloutReturn, TrainFreq, convert_train_freq
from polyak.compat.sb3_face import policies
from polyak.compat.sb3_face.files.names import renamed, renamed_memory
from polyak.compat.sb3_face.functions import flat_grad, get_parameters_by_name, near_zero, update_learning_rate
from polyak.compat.sb3_face.maskable import policies as maskable_policies
from polyak.compat.sb3_face.maskable.buffers import MASKS, MaskableDictRolloutBuffer, MaskableRolloutBuffer
from polyak.compat.sb3_face.overrides import refuse
from polyak.compat.sb3_face.parts import (
    Parts,
    all_parameters,
    find_parts,
    given_parameters,
    holds_any,
    identities,
    load_part,
    restore_besides,
    store,
    store_given,
    stored_parts,
)
from polyak.compat.sb3_face.recurrent import options as recurrent_options
from polyak.compat.sb3_face.recurrent import policies as recurrent_policies
from polyak.compat.sb3_face.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from polyak.compat.sb3_face.recurrent.type_aliases import RNNStates
from polyak.compat.sb3_face.signatures import in_order, takes, with_defaults
from polyak.envs import DummyVecEnv, VecEnv, VecNormalize, as_vec_env
from polyak.envs.adapters.infos import episode_columns
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.make import make_env
from polyak.envs.masks import Masks
from polyak.envs.spaces import check_for_nested_spaces
from polyak.experience import (
    DictReplayBuffer,
    DictRolloutBuffer,
    HerReplayBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from polyak.experience.memory import overcommitted
from polyak.experience.step import Observations, Step
from polyak.fields import off_policy, on_policy
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import require
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, LearnerRecipe, OptimizerRecipe
from polyak.learning.part_rates import set_part_rate
from polyak.learning.rollout_learner import RolloutLearner
from polyak.loops.clock import EpisodeStatistics
from polyak.loops.off_policy import OffPolicyLoop, storage_of
from polyak.loops.on_policy import OnPolicyLoop
from polyak.loops.training import Loop, tasks
from polyak.loops.updates import following
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn.catalog import check_policy_fits
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.networks.encoders import Obs
from polyak.noise import ActionNoise
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay
from polyak.parts.rollouts import Rollouts
from polyak.suggestions import did_you_mean
from polyak.warning import warn_user

_SET_LATER = (
    *("start_time", "logger", "replay_buffer", "rollout_buffer", "runner", "_learner", "normalisation", "host"),
    *("_iteration", "_collection", "observation_space", "action_space", "n_envs", "_plain", "_explored"),
    *("_acted_on", "_stored_step"),
)
"""Attributes of polyak's own that may appear after the model is set up."""

Aliases = dict[str, type[policies.BasePolicy]]


def by_name(*classes: type[policies.BasePolicy], lstm: str = "") -> Aliases:
    """Policies for vectors, for images and for Dicts by the names that algorithms have for them."""
    return dict(zip((f"Mlp{lstm}Policy", f"Cnn{lstm}Policy", f"MultiInput{lstm}Policy"), classes, strict=False))


def maybe_make_env(env: Any, verbose: int) -> Any:
    """Returns an environment by its registered name; anything else as it is."""
    if isinstance(env, str):
        if verbose >= 1:
            print(f"Making the environment {env!r}.")
        return make_env(env)
    return env


class PolicyLearner(RolloutLearner):
    """The policy of an algorithm that trains it by itself, and the optimizers of that policy."""

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        owners: dict[str, Any] = {"policy": self.policy}
        owners |= {name: getattr(self.policy, name, None) for name in ("actor", "critic")}
        for name, owner in owners.items():
            if isinstance(optimizer := getattr(owner, "optimizer", None), Optimizer):
                self.optimizers[name] = optimizer
                self._owners[name] = owner


def _constructor_arguments(cls: type, policy: Any, device: Any, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments with which a model of a file can be set up afterwards.

    Raises:
        ValueError: it cannot do without something that the file does not have.
    """
    given = {"policy": policy, "env": None, "device": device, "_init_setup_model": False}
    takes = inspect.signature(cls).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    arguments = {name: value for name, value in given.items() if anything or name in takes}
    for name, parameter in takes.items():
        needed = parameter.default is parameter.empty and parameter.kind not in _VARIADIC
        if needed and name not in arguments:
            if name not in hyperparameters:
                raise ValueError(
                    f"{cls.__name__}.__init__() needs {name!r}, which the file does not have. Keep it as an attribute "
                    f"of the model, or load with {cls.__name__}.load(path, {name}=...)."
                )
            arguments[name] = hyperparameters[name]
    return arguments


def _refuse_nested(env: Any) -> None:
    """Refuse nested observations, as the peer does; :func:`~polyak.envs.make_vec_env` has converted them before.

    Raises:
        NotImplementedError: the observations of an environment are nested.
    """
    if isinstance(space := getattr(env, "observation_space", None), spaces.Space):
        check_for_nested_spaces(space)


def _checked(env: VecEnv) -> VecEnv:
    """Returns a vector of environments; refuses wrappers with overrides that nothing calls.

    Raises:
        HyperparameterError: naming the method, with the reason.
    """
    layer: Any = env
    while layer is not None:
        for kind, reasons in _NOT_CALLED_OF_LAYERS.items():
            if isinstance(layer, kind):
                refuse("env", type(layer), kind, reasons)
        layer = getattr(layer, "venv", None)
    return env


_NOT_CALLED_OF_LAYERS: Mapping[type, Mapping[str, str]] = {
    DummyVecEnv: dict.fromkeys(["_save_obs", "_obs_from_buf"], "Write reset() and step_wait()"),
    VecNormalize: {"_sanity_checks": "the constructor checks its arguments. Write that"},
}
_NOT_CALLED_OF_HINDSIGHT = dict.fromkeys(
    ["_sample_goals", "_get_real_samples", "_get_virtual_samples", "_compute_episode_length"],
    "goals of a batch are found at once. Write sample()",
)
"""Methods of wrappers and buffers that nothing calls -> why, and the alternative."""


def _is_polyaks(defined: Any) -> bool:
    """Whether a class or function is polyak's, and not a user's."""
    return defined.__module__.partition(".")[0] == "polyak"


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# -- base classes ------------------------------------------------------------------------------------------------------


def their_following(model: Any) -> Callable[[], None]:
    """Returns the function that updates the learner's scheduled values; a user's ``_update_learning_rate`` sets the
    rate."""
    follow = following(model)
    return follow if _is_polyaks(model._update_learning_rate) else partial(follow_theirs, model)


def follow_theirs(model: Any) -> None:
    """Update scheduled values, with the rate set by a user's ``_update_learning_rate``."""
    learner, remaining = model.learner, model.clock.remaining
    learner.adopt_optimizers()
    optimizers = list(learner.optimizers.values())
    model._update_learning_rate(optimizers[0] if len(optimizers) == 1 else optimizers)
    learner.set(**{name: schedule(remaining) for name, schedule in model.schedules.moving.items()})
    for name, rate in model.schedules.part_rates.items():
        set_part_rate(learner, name, rate, remaining)


@takes(
    "learning_rate policy_kwargs stats_window_size tensorboard_log verbose device support_multi_env monitor_wrapper "
    "seed use_sde sde_sample_freq supported_action_spaces",
    first="policy env",
    required="env learning_rate",
)
class BaseAlgorithm(NetworkAlgorithm):
    """See :class:`polyak.algorithm.Algorithm` and its subclasses.

    A subclass may override the constructor and ``_setup_model``. Its model is still saved and loaded: :meth:`load`
    calls the constructor with ``policy``, ``env``, ``device`` and ``_init_setup_model=False``, as far as it takes them,
    restores the model's attributes, calls ``_setup_model()``, and loads networks, optimizers and tensors.

    Args:
        support_multi_env: whether several environments are supported.
        monitor_wrapper: wrap a single environment in a Monitor.
        use_sde, sde_sample_freq: state-dependent exploration.
        supported_action_spaces: kinds of action space that the algorithm can handle; ``None`` for all.
    """

    learn = with_defaults(Algorithm.learn, log_interval=100, tb_log_name="run")

    learner_class: ClassVar[type[Learner]] = PolicyLearner
    policy_aliases: ClassVar[Aliases] = {}
    not_called: ClassVar[Mapping[str, str]] = {
        "_dump_logs": "training calls dump_logs(), as Stable-Baselines3 does since 2.4. Rename it"
    }
    """Methods that a subclass cannot override -> why, and the alternative."""
    use_sde: bool = False
    sde_sample_freq: int | Literal["episode"] = -1
    action_noise: Any = None

    def __init__(
        self,
        policy: str | type[policies.BasePolicy],
        env: Any,
        *,
        verbose: int = 0,
        support_multi_env: bool = False,
        monitor_wrapper: bool = True,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        supported_action_spaces: tuple[type[spaces.Space], ...] | None = None,
        **options: Any,
    ) -> None:
        env = self._accept(env, verbose, support_multi_env, monitor_wrapper, supported_action_spaces, use_sde)
        NetworkAlgorithm.__init__(self, policy, env, verbose=verbose, _init_setup_model=False, **options)
        self.use_sde, self.sde_sample_freq = use_sde, sde_sample_freq

    def _accept(
        self,
        env: Any,
        verbose: int,
        support_multi_env: bool,
        monitor_wrapper: bool,
        supported_action_spaces: tuple[type[spaces.Space], ...] | None,
        use_sde: bool,
    ) -> VecEnv | None:
        """Returns the environment of a user's own algorithm, wrapped, if that algorithm can handle it."""
        if supported_action_spaces is not None:
            self._put(action_spaces=supported_action_spaces)  # of this instance
        if env is None:
            return None
        self._accepted = vec_env = self._wrapped(env, verbose, monitor_wrapper)
        if not support_multi_env and vec_env.num_envs > 1:
            raise ValueError(
                f"env has {vec_env.num_envs} environments, but {type(self).__name__} learns in one: pass a single one."
            )
        if use_sde and not isinstance(vec_env.action_space, spaces.Box):
            raise ValueError(f"use_sde=True explores in a Box, but the action space is {vec_env.action_space}.")
        return vec_env

    _accepted: VecEnv | None = None
    """An environment that the constructor of a user's own algorithm has wrapped already."""

    def _vectorised(self, env: Any) -> VecEnv:
        accepted, self._accepted = self._accepted, None
        return self._wrapped(env, self.verbose) if accepted is None or env is not accepted else accepted

    def _wrapped(self, env: Any, *options: Any) -> VecEnv:
        if not _is_polyaks(self._wrap_env):
            env = maybe_make_env(env, options[0])  # an override gets an environment, not its name
        return _checked(self._wrap_env(env, *options))

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        _refuse_nested(env)
        return as_vec_env(env, monitor_wrapper, verbose)

    def _get_policy_from_name(self, policy_name: str) -> type[policies.BasePolicy]:
        if policy_name not in self.policy_aliases:
            hint = did_you_mean(policy_name, self.policy_aliases)
            raise ValueError(f"Policy {policy_name!r} unknown: there are {sorted(self.policy_aliases)}.{hint}")
        return self.policy_aliases[policy_name]

    def _policy_called(self, name: str) -> Callable[..., Any]:
        return self._get_policy_from_name(name)

    def make_policy(self) -> Callable[[], Any]:
        """Returns a recipe for the policy, which takes the learning-rate schedule and has its own optimizer."""
        kwargs = self.policy_kwargs or {}
        if isinstance(self._policy_name, str) and kwargs.get("features_extractor_class") is None:
            check_policy_fits(self._policy_name, self.observation_space, kwargs.get("normalize_images", True))
        options, default = self._policy_options(), self._default_optimizer()
        if default.cls is not torch.optim.Adam and "optimizer_class" not in options:
            options |= {"optimizer_class": default.cls, "optimizer_kwargs": dict(default.kwargs)}
        if not issubclass(self.policy_class, policies.BaseModel):  # type: ignore[arg-type]  # polyak's own
            return super().make_policy()
        return partial(self.policy_class, self.observation_space, self.action_space, self.lr_schedule, **options)

    @property
    def learner(self) -> Learner:
        """The learner that ``_setup_model()`` built; a user's own may build a policy only."""
        learner, policy = self._learner, getattr(self.policy, "_orig_mod", self.policy)  # within torch.compile()
        if learner is None or (type(learner) is PolicyLearner and policy is not None and learner.policy is not policy):
            self._learner = learner = PolicyLearner(
                LearnerRecipe(PolicyLearner, lambda: policy, OptimizerRecipe(), 0.0, {})
            )
        return learner

    @learner.setter
    def learner(self, learner: Learner) -> None:
        self._learner = learner

    _learner: Learner | None = None

    # -- files: attributes that a subclass or a program adds to the model ----------------------------------------------

    _own_attributes: frozenset[str] = frozenset(_SET_LATER)

    def __post_init__(self, _init_setup_model: bool) -> None:
        cls = type(self)
        ours = next(base for base in cls.__mro__ if _is_polyaks(base))
        refuse("algorithm", cls, ours, self.not_called)
        _refuse_nested(self.env)
        super().__post_init__(_init_setup_model)
        self.normalisation.by_itself = False  # programs normalise by themselves, with the VecNormalize they load
        self._own_attributes |= set(vars(self))

    def _following(self) -> Callable[[], None]:
        return their_following(self)

    def _setup_model(self) -> None:
        before = set(vars(self))
        super()._setup_model()
        self._own_attributes |= set(vars(self)) - before

    @classmethod
    def _has_own_constructor(cls) -> bool:
        """Whether a subclass overrides the constructor, with any arguments."""
        owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
        return not _is_polyaks(owner) and "__dataclass_fields__" not in vars(owner)

    def _parts(self) -> Parts:
        """Parts of the model that learn, besides those of the learner."""
        named = () if _is_polyaks(self._get_torch_save_params) else self._get_torch_save_params()
        names = [name for names in named for name in names if name != "policy"]
        if self._has_own_constructor() or not _is_polyaks(type(self)._setup_model):
            names += [name for name in vars(self) if name not in self._own_attributes]
        return find_parts(self, names, self.learner)

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes that a subclass or a program has added, which Stable-Baselines3 saves.

        Private ones are kept if they are plain values. State of running episodes (``_last_...``) is not kept.
        """
        named = [name for names in self._get_torch_save_params() for name in names]
        left_out = {*self._own_attributes, *self._excluded_save_params(), *self._parts()}
        left_out |= {name.partition(".")[0] for name in named}
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        learned = identities(self.learner)
        return {
            name: value
            for name, value in values.items()
            if not holds_any(value, learned)
            and (not name.startswith("_") or (name[:6] != "_last_" and is_plain(value)))
        }

    def hyperparameters(self) -> dict[str, Any]:
        values = super().hyperparameters()
        return values | self._attributes() if self._has_own_constructor() else values

    def _extra_state(self) -> dict[str, Any]:
        state = super()._extra_state()
        if self._has_own_constructor():
            return state  # they are among the hyper-parameters, which _setup_model() needs
        attributes = {name: value for name, value in self._attributes().items() if not name.startswith("_")}
        return state | {"attributes": attributes} if attributes else state

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        attributes = state.pop("attributes", {})
        super()._load_extra_state(state)
        for name, value in warn_untrusted(attributes).items():
            setattr(self, name, value)

    @classmethod
    def _takes(cls, name: str) -> bool:
        return cls._has_own_constructor() or super()._takes(name)

    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self:
        if not cls._has_own_constructor():
            return super()._unbuilt(policy, device, hyperparameters)
        model = cls(**_constructor_arguments(cls, policy, device, hyperparameters))
        for name, value in hyperparameters.items():
            setattr(model, name, value)
        model._check_types()
        model._check_hyperparameters()
        model._setup_lr_schedule()
        model.ep_info_buffer = deque(maxlen=model.stats_window_size)
        model.ep_success_buffer = deque(maxlen=model.stats_window_size)
        return model

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if parts := self._parts():
            store(parts, saved)
        if not _is_polyaks(type(self).get_parameters):
            store_given(self.get_parameters(), saved)

    def _load_learned(self, saved: Saved) -> None:
        parts = stored_parts(saved)
        if _is_polyaks(type(self).set_parameters) and "given" not in saved.info:
            super()._load_learned(saved)
        else:  # as Stable-Baselines3 loads: all that has a state dict, by set_parameters()
            restore_besides(self.learner, saved)
            self.set_parameters(given_parameters(saved), exact_match=True, device=self.device)
            parts = {name: part for name, part in parts.items() if isinstance(part, torch.Tensor)}
        for name, value in parts.items():
            load_part(self, name, value)

    def get_parameters(self) -> dict[str, Any]:
        """State dicts of the policy, of each optimizer and of further parts, under Stable-Baselines3's names."""
        parts = self._parts().items()
        return super().get_parameters() | {
            name: part.state_dict() for name, part in parts if not isinstance(part, torch.Tensor)
        }

    def _parameters_of(self, given: Any) -> Mapping[str, Any]:
        """Returns the argument of ``set_parameters()``, read if it is a file."""
        return given if isinstance(given, Mapping) else all_parameters(checkpoint.read(given, weights_only=True))

    @names_file
    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: torch.device | str = "auto"
    ) -> None:
        parts, values = self._parts(), self._parameters_of(load_path_or_dict)
        missing = [name for name, part in parts.items() if not isinstance(part, torch.Tensor) and name not in values]
        if exact_match and missing:
            raise ValueError(
                f"exact_match=True needs every part of the model, but {missing} are missing. Pass exact_match=False to "
                "load only what is there."
            )
        super().set_parameters({k: v for k, v in values.items() if k not in parts}, exact_match, device)
        for name in parts.keys() & values.keys():
            load_part(self, name, values[name], exact_match)

    set_parameters.__doc__ = NetworkAlgorithm.set_parameters.__doc__

    # -- names that subclasses use -------------------------------------------------------------------------------------

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        self.clock.remaining = 1.0 - float(num_timesteps) / float(total_timesteps)

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        """Keep the statistics of the episodes that ended, as infos have them."""
        self.statistics.note(episode_columns(infos, dones))

    def _tick(self) -> None:
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)

    def _update_learning_rate(self, optimizers: Optimizer | list[Optimizer]) -> None:
        """Log the current learning rate and set it in the optimizers."""
        rate = self.lr_schedule(self._current_progress_remaining)
        self.logger.record("train/learning_rate", rate)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            update_learning_rate(optimizer, rate)

    def _tick_within(self) -> None:
        total = self._total_timesteps
        self._update_current_progress_remaining(min(self.num_timesteps, total), total)

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        """Returns names of objects with a state dict, and of further tensors."""
        names = list(parameters(self.learner))
        return names, [name for name, _ in self.learner.named_parameters(recurse=False)]

    def _excluded_save_params(self) -> list[str]:
        """Returns the attributes that a saved file never holds."""
        besides = ["_vec_normalize_env", "_logger", "_custom_logger"]
        return ["policy", "device", "env", "replay_buffer", "rollout_buffer", *besides]

    def _dump_logs(self) -> None:
        """Logs by the former name of :meth:`dump_logs`."""
        warn_user("_dump_logs() is deprecated: use dump_logs().")
        self.dump_logs()


def rollout_loop(model: Any, callback: BaseCallback, log_interval: int | None) -> StepwiseRollouts:
    """Returns the loop of a class that may override methods that Stable-Baselines3 calls."""
    model._plain = plain = OnPolicyLoop.of(model, callback, log_interval)
    plain.tick = model._tick
    if not _is_polyaks(model._update_info_buffer):
        plain.collector.statistics = EpisodeStatistics(1)  # the override keeps them
    return StepwiseRollouts(model, plain)


class TheirRollouts(Rollouts):
    """Rollouts in the peer's buffer classes, which programs extend."""

    numpy_alone: ClassVar = "what extends Stable-Baselines3's classes reads numpy"
    made_by_recipe: ClassVar = False
    buffer_classes: ClassVar[tuple[type[RolloutBuffer], ...]] = RolloutBuffer, DictRolloutBuffer
    """The buffer of a single space, and that of a Dict."""

    def check_batch_size(self) -> None:
        """Accepts a minibatch above the rollout: it becomes the whole rollout, as in the peer, and the constructor
        warns."""

    def make_buffer(self) -> Any:
        model = self.model
        if model.rollout_buffer_class is None:
            model.rollout_buffer_class = self.buffer_classes[isinstance(model.observation_space, spaces.Dict)]
        return super().make_buffer()

    def writer(self, steps: int | None = None) -> Any:
        writer = super().writer(steps)
        return writer if _is_polyaks(self.model._update_info_buffer) else Reporting(writer, self.model)


@takes(
    "learning_rate n_steps gamma gae_lambda ent_coef vf_coef max_grad_norm use_sde sde_sample_freq "
    "rollout_buffer_class rollout_buffer_kwargs stats_window_size tensorboard_log monitor_wrapper policy_kwargs "
    "verbose seed device _init_setup_model supported_action_spaces",
    first="policy env",
    required="env learning_rate n_steps gamma gae_lambda ent_coef vf_coef max_grad_norm use_sde sde_sample_freq",
)
class OnPolicyAlgorithm(on_policy.OnPolicyAlgorithm, BaseAlgorithm):
    """See :class:`polyak.fields.on_policy.OnPolicyAlgorithm` and :class:`BaseAlgorithm`."""

    supports_masks: ClassVar[bool] = False  # as in the peer

    policy_aliases = by_name(
        policies.ActorCriticPolicy, policies.ActorCriticCnnPolicy, policies.MultiInputActorCriticPolicy
    )
    made_of: ClassVar[MadeOf] = {"rollouts": TheirRollouts}
    loop: ClassVar[Callable[..., Loop]] = rollout_loop

    def __init__(
        self,
        policy: str | type[policies.BasePolicy],
        env: Any,
        *,
        verbose: int = 0,
        use_sde: bool = False,
        monitor_wrapper: bool = True,
        supported_action_spaces: tuple[type[spaces.Space], ...] | None = None,
        **options: Any,
    ) -> None:
        env = self._accept(env, verbose, True, monitor_wrapper, supported_action_spaces, use_sde)
        on_policy.OnPolicyAlgorithm.__init__(self, policy, env, verbose=verbose, use_sde=use_sde, **options)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        self.rollout_buffer_kwargs = self.rollout_buffer_kwargs or {}  # subclasses unpack them

    def _after_setup(self) -> None:
        super()._after_setup()
        self._maybe_recommend_cpu()

    def _maybe_recommend_cpu(self, mlp_class_name: str = "ActorCriticPolicy") -> None:
        """Warn if a small network is about to be trained on a GPU."""
        name = getattr(self.policy_class, "__name__", "")
        if torch.device(self.device).type != "cpu" and name == mlp_class_name:
            warn_user(
                f"You are trying to run {type(self).__name__} on the GPU, but without a CNN it is usually faster on "
                "the CPU: pass device='cpu', and use several environments.",
                UserWarning,
            )

    learn = with_defaults(Algorithm.learn, log_interval=1, tb_log_name="OnPolicyAlgorithm")

    # -- methods that subclasses override ------------------------------------------------------------------------------

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the rollout buffer; False if a callback stopped training."""
        if self._plain is None:  # a program collects outside of learn()
            type(self).loop(self, callback, None)
        return cast(Any, self._plain).collect(n_rollout_steps)

    _plain: Any = None


class Reporting:
    """Stores steps, and passes them to a class's own ``_update_info_buffer`` for statistics of episodes.

    Args:
        writer: stores the steps.
        model: the algorithm.
    """

    adopts = False

    def __init__(self, writer: Any, model: OnPolicyAlgorithm) -> None:
        self._writer, self._model = writer, model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def record(self, step: Step) -> None:
        """Take a step of the environments."""
        self._model._update_info_buffer(list(step.infos), step.dones)
        self._writer.record(step)


class StepwiseRollouts:
    """Calls the methods of a model that its class may have overridden: ``collect_rollouts`` and ``train``.

    Args:
        model: the algorithm.
        plain: the default loop, whose parts it uses.
    """

    def __init__(self, model: OnPolicyAlgorithm, plain: Any) -> None:
        self.model, self.plain = model, plain

    def iterate(self) -> bool:
        """Collects a rollout and learns from it. False if a callback stopped training."""
        model, plain = self.model, self.plain
        more = {"use_masking": model._use_masking} if isinstance(model, MaskablePPO) else {}
        if model._collection is None:
            model.rollouts.make_room()
        assert model.env is not None
        callback = plain.collector.callback
        if not model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps, **more):
            return False
        plain.note()
        with model._split.update:
            model.train()
        for check in plain.between:
            check()
        return True


class SamplingActor(Actor):
    """Acts by an algorithm's ``_sample_action``, which a subclass has overridden.

    Args:
        model: the algorithm.
        exploration: the exploration of the algorithm's own ``_sample_action``.
    """

    def __init__(self, model: OffPolicyAlgorithm, exploration: dict[str, Exploration]) -> None:
        super().__init__(model.policy, exploration)
        self.model = model

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        model = self.model
        env_actions, actions = model._sample_action(model.learning_starts, model.action_noise, model.n_envs)
        return Acted(env_actions, actions, {})


class Predicted(Exploration):
    """The actions of ``predict``, which a subclass of the algorithm or of its policy has overridden.

    Args:
        model: the algorithm.
    """

    def __init__(self, model: OffPolicyAlgorithm) -> None:
        self.model = model

    def before(self, policy: Any, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        return policy.codec.from_env(self.model.predict(self.model._last_obs, deterministic=False)[0])


def _successors(new_obs: Any, step: Step) -> Any:
    """Returns ``new_obs`` with the true final observations where episodes ended."""
    if isinstance(new_obs, dict):
        return {
            key: _successors(value, step._replace(next_observations=step.next_observations[key]))
            for key, value in new_obs.items()
        }
    ended = step.dones.reshape(-1, *[1] * (np.ndim(new_obs) - 1))
    return np.where(ended, step.next_observations, new_obs)


def replay_loop(model: Any, callback: BaseCallback, log_interval: int | None) -> Loop:
    """Returns the loop of a class that may override methods that Stable-Baselines3 calls: the plain one, whose parts
    call the overrides, or a stepwise one if the class overrides collecting or learning."""
    plain = OffPolicyLoop.of(model, callback, log_interval)
    if not isinstance(plain, OffPolicyLoop):
        return plain
    model._plain = plain
    plain.store = their_storage(model)
    if not _is_polyaks(model._update_current_progress_remaining):
        plain.tick = model._tick
    if not _is_polyaks(model._on_step):
        plain.after_step = (model._on_step,)
    if not _is_polyaks(model._store_transition):
        plain.collector.before_step += (partial(note_observations, model),)
    if not _is_polyaks(model._update_info_buffer):
        plain.collector.statistics = EpisodeStatistics(1)  # the override keeps them
        plain.store = Reporting(plain.store, model)
    plain.collector.before_series += (partial(explore_as_set, model),)
    own = not (_is_polyaks(model.collect_rollouts) and _is_polyaks(model.train))
    return StepwiseReplay(model, plain) if own else plain


def note_observations(model: Any) -> None:
    """Set ``_last_obs`` and ``_last_original_obs`` before a step, for an own ``_store_transition``."""
    model._acted_on = model.runner.obs, model.runner.original_obs


def explore_as_set(model: Any) -> None:
    """Change the exploration before a series, if the attributes that determine it have been set."""
    if model._explored != (options := model._exploration_options()):
        model._explored = options
        model.runner.actor.explore_next(model._exploration())


class Transitions:
    """Stores steps by an own ``_store_transition``.

    Args:
        model: the algorithm.
        buffer: the buffer to fill.
    """

    def __init__(self, model: Any, buffer: Any) -> None:
        self.model, self.buffer = model, buffer

    def record(self, step: Step) -> None:
        """Take a step of the environments."""
        model, runner = self.model, self.model.runner
        model._stored_step, in_hand = step, (runner.obs, runner.original_obs)
        runner.obs, runner.original_obs = model._acted_on
        try:
            infos = list(step.infos)
            model._store_transition(self.buffer, step.actions, step.new_obs, step.rewards, step.dones, infos)
        finally:
            runner.obs, runner.original_obs = in_hand


def their_storage(model: Any, buffer: Any = None) -> Any:
    """Returns the storage of steps: ``buffer``, or the model's own replay buffer."""
    if _is_polyaks(model._store_transition):
        return storage_of(model) if buffer is None else buffer
    return Transitions(model, model.replay_buffer if buffer is None else buffer)


class StepwiseReplay:
    """Calls the methods of a model that its class may have overridden: ``collect_rollouts`` and ``train``.

    Args:
        model: the algorithm.
        plain: the default loop, whose parts it uses.
    """

    def __init__(self, model: OffPolicyAlgorithm, plain: OffPolicyLoop) -> None:
        self.model, self.plain = model, plain

    def iterate(self) -> bool:
        """Collects experience, and makes the gradient steps that are due. False if a callback stopped training."""
        model, plain = self.model, self.plain
        assert model.env is not None
        assert model.replay_buffer is not None
        made = model.collect_rollouts(
            model.env,
            plain.collector.callback,
            model.train_freq,
            model.replay_buffer,
            action_noise=model.action_noise,
            learning_starts=model.learning_starts,
            log_interval=plain.log_interval,
        )
        if not made.continue_training:
            return False
        if (steps := plain.due(Collection(steps=made.episode_timesteps // model.n_envs))) > 0:
            clock, split = model.clock, model._split
            with plain.ahead() if model.overlap and clock.steps < clock.total else split.update:
                model.train(gradient_steps=steps, batch_size=model.batch_size)
        for check in plain.between:
            check()
        return True


class TheirReplay(ExperienceReplay):
    """Replay in the peer's buffer classes, which programs extend."""

    numpy_alone: ClassVar = "what extends Stable-Baselines3's classes reads numpy"
    _chose_buffer = False

    def make_own(self) -> ReplayBuffer:
        model = self.model
        if isinstance(model.replay_buffer_class, type):
            refuse("replay_buffer_class", model.replay_buffer_class, HerReplayBuffer, _NOT_CALLED_OF_HINDSIGHT)
        if model.replay_buffer_class is None:
            nested = isinstance(model.observation_space, spaces.Dict)
            many = NStepReplayBuffer if model.n_steps != 1 and not nested else ReplayBuffer
            model.replay_buffer_class, self._chose_buffer = DictReplayBuffer if nested else many, True
        elif model.n_steps != 1 and not self._chose_buffer:
            warn_user(
                f"n_steps={model.n_steps} does not reach a replay_buffer_class of your own: pass it in "
                "replay_buffer_kwargs, as dict(n_steps=..., gamma=...), if that class takes it.",
                UserWarning,
            )
        with overcommitted():  # as in the peer, which warns
            return super().make_own()

    def options(self) -> dict[str, Any]:
        return super().options() if self._chose_buffer else dict(self.model.replay_buffer_kwargs or {})


@takes(
    "learning_rate buffer_size learning_starts batch_size tau gamma train_freq gradient_steps action_noise "
    "replay_buffer_class replay_buffer_kwargs optimize_memory_usage n_steps policy_kwargs stats_window_size "
    "tensorboard_log verbose device support_multi_env monitor_wrapper seed use_sde sde_sample_freq use_sde_at_warmup "
    "sde_support supported_action_spaces",
    first="policy env",
    required="env learning_rate",
    learning_starts=100,
    batch_size=256,
    gradient_steps=1,
    train_freq=(1, "step"),
)
class OffPolicyAlgorithm(off_policy.OffPolicyAlgorithm, BaseAlgorithm):
    """See :class:`polyak.fields.off_policy.OffPolicyAlgorithm` and :class:`BaseAlgorithm`.

    Args:
        action_noise: added to the actions while collecting.
        use_sde_at_warmup: explore with gSDE instead of uniform actions before ``learning_starts``.
        sde_support: whether the algorithm can use gSDE.
    """

    made_of: ClassVar[MadeOf] = {"replay": TheirReplay}
    loop: ClassVar[Callable[..., Loop]] = replay_loop
    use_sde: WithNetworks[bool] = False

    def __init__(
        self,
        policy: str | type[policies.BasePolicy],
        env: Any,
        *,
        verbose: int = 0,
        tau: float = 0.005,
        action_noise: Any = None,
        support_multi_env: bool = False,
        monitor_wrapper: bool = True,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        sde_support: bool = True,
        supported_action_spaces: tuple[type[spaces.Space], ...] | None = None,
        **options: Any,
    ) -> None:
        env = self._accept(env, verbose, support_multi_env, monitor_wrapper, supported_action_spaces, use_sde)
        off_policy.OffPolicyAlgorithm.__init__(self, policy, env, verbose=verbose, _init_setup_model=False, **options)
        self.tau, self.action_noise = tau, action_noise
        self.use_sde, self.sde_sample_freq, self.use_sde_at_warmup = use_sde, sde_sample_freq, use_sde_at_warmup
        if sde_support:
            self.policy_kwargs = {**(self.policy_kwargs or {}), "use_sde": use_sde}

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        self.replay_buffer_kwargs = self.replay_buffer_kwargs or {}  # subclasses unpack them

    def _setup_model(self) -> None:
        super()._setup_model()
        self._convert_train_freq()

    def _convert_train_freq(self) -> None:
        """Convert ``train_freq`` to its usual form, after it has been changed."""
        self.train_freq = convert_train_freq(self.train_freq)

    learn = with_defaults(Algorithm.learn, log_interval=4, tb_log_name="run")

    # -- methods that subclasses override ------------------------------------------------------------------------------

    def make_actor(self) -> Acting:
        """Returns the actor: the current policy, or ``_sample_action`` of a subclass."""
        self._explored = self._exploration_options()
        overridden = type(self)._sample_action is not OffPolicyAlgorithm._sample_action
        return SamplingActor(self, self._exploration()) if overridden else super().make_actor()

    def _exploration_options(self) -> list[Any]:
        """Returns the values that exploration is built from, which are no hyper-parameters of a user's algorithm."""
        return list(map(vars(self).get, ExperienceReplay.explores_by))

    def _exploration(self) -> dict[str, Exploration]:
        parts = super()._exploration()
        if not (_is_polyaks(type(self).predict) and _is_polyaks(type(self.policy).predict)):
            parts["predict"] = Predicted(self)
        return parts

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        train_freq: TrainFreq,
        replay_buffer: ReplayBuffer,
        action_noise: ActionNoise | None = None,
        learning_starts: int = 0,
        log_interval: int | None = None,
    ) -> RolloutReturn:
        """Step the environments and store the transitions.

        Args:
            env: the model's environments.
            callback: called after every step; returns whether to continue.
            train_freq: the length of the collection.
            replay_buffer: the buffer to fill.
            action_noise, learning_starts: explore with these.
            log_interval: episodes between log tables.

        Returns:
            the number of collected steps and episodes, and whether to continue.
        """
        if self._plain is None:  # a program collects outside of learn()
            type(self).loop(self, callback, log_interval)
        plain = self._plain
        plain.collector.callback, plain.log_interval = callback, log_interval
        before, ended = self.clock.steps, self.clock.episodes
        with self._exploring(action_noise, learning_starts):
            into = plain.store if replay_buffer is self.replay_buffer else their_storage(self, replay_buffer)
            series = plain.collector.collect(train_freq, into, (plain.count,))
        if series is None:
            return RolloutReturn(self.clock.steps - before, self.clock.episodes - ended, continue_training=False)
        return RolloutReturn(series.steps * self.n_envs, series.episodes, continue_training=True)

    _plain: Any = None
    _stored_step: Any = None
    _acted_on: Any = (None, None)
    """Observations in hand before the step that was made last, and the same before normalisation."""

    def _start_episodes(self) -> None:
        if self._collection is not None and self._collection.pending is not None:
            pending, self._collection.pending = self._collection.pending, None
            self._acted_on = pending.observations, pending.observations
            their_storage(self).record(pending)
        super()._start_episodes()

    def _on_step(self) -> None:
        """Called after each step, when it is stored."""
        for task in tasks(self, "after_step"):
            task()

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exploratory actions for the current observations: in environment units, and as they are stored."""
        assert self.runner is not None
        with self._exploring(action_noise, learning_starts):
            acted = Actor.act(self.runner.actor, self.runner.obs, self.runner.episode_starts)  # type: ignore[arg-type]
        return acted.env_actions, acted.actions

    @contextmanager
    def _exploring(self, action_noise: ActionNoise | None, learning_starts: int) -> Iterator[None]:
        """Within the block exploration uses these arguments, if they differ from the attributes of that name."""
        if action_noise is self.action_noise and learning_starts == self.learning_starts:
            yield
            return
        assert self.runner is not None
        actor: Any = self.runner.actor
        kept = self.action_noise, self.learning_starts, actor.exploration
        self._put(action_noise=action_noise, learning_starts=learning_starts)
        try:
            actor.explore(self._exploration())
            yield
        finally:
            self._put(action_noise=kept[0], learning_starts=kept[1])
            actor.explore(kept[2])

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: Any,
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store the step that was just made, with these values; rewards are those before normalisation."""
        step = self._stored_step
        step = step._replace(actions=buffer_action, rewards=reward, dones=dones, infos=infos)
        if new_obs is not step.new_obs:
            step = step._replace(new_obs=new_obs, next_observations=_successors(new_obs, step))
        truncated = dones & np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        replay_buffer.record(step._replace(terminated=dones & ~truncated, truncated=truncated))

    def train(self, gradient_steps: int, batch_size: int) -> None:  # type: ignore[override]
        """Sample minibatches and learn from them."""
        super().train(gradient_steps, batch_size)


class Statistics:
    """The statistics of the batch norms of a network, which training steps of programs copy into its lagging copy.

    Args:
        network: the policy's name of it.
    """

    def __init__(self, network: str) -> None:
        self._network = network

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else get_parameters_by_name(getattr(model.policy, self._network), ["running_"])


class _Aliased(OffPolicyAlgorithm):
    """Algorithms with parts of the policy that programs read as attributes, such as ``q_net``: here properties."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self._create_aliases()

    def _create_aliases(self) -> None:
        """Called when the policy is built, for a subclass that names further parts."""


# -- the algorithms ----------------------------------------------------------------------------------------------------

_TAIL = "stats_window_size tensorboard_log policy_kwargs verbose seed device _init_setup_model"
_REPLAY = (
    "learning_rate buffer_size learning_starts batch_size tau gamma train_freq gradient_steps action_noise "
    "replay_buffer_class replay_buffer_kwargs optimize_memory_usage n_steps"
)


@in_order(
    "learning_rate n_steps gamma gae_lambda ent_coef vf_coef max_grad_norm rms_prop_eps use_rms_prop use_sde "
    f"sde_sample_freq rollout_buffer_class rollout_buffer_kwargs normalize_advantage {_TAIL}",
    log_interval=100,
)
class A2C(a2c.A2C, OnPolicyAlgorithm):
    """See :class:`polyak.A2C`."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = SINGLE_SPACES  # as in the peer


class TheirEpochs(TheirRollouts, Epochs):
    """Rollouts in the peer's buffers, over which PPO makes several passes."""

    def check_batch_size(self) -> None:
        """Accepts a minibatch above the rollout: it becomes the whole rollout, and the truncated-batch check warns."""
        model = self.model
        if model.env is not None and model.normalize_advantage:
            rows = model.n_steps * model.n_envs
            why = f"n_steps * n_envs = {rows} must be greater than 1: a single advantage cannot be normalised."
            require(rows > 1, "n_steps", model.n_steps, why)


class MaskableEpochs(TheirEpochs):
    """PPO's rollouts with masks, for which the buffer has a column."""

    buffer_classes: ClassVar = MaskableRolloutBuffer, MaskableDictRolloutBuffer
    stores_masks: ClassVar = ()  # its buffers always do

    def find_masks(self) -> None:
        """Does nothing: the masks are found by ``learn``."""


class RecurrentEpochs(TheirEpochs):
    """PPO's rollouts with recurrent states."""

    def make_buffer(self) -> Any:
        nested = isinstance(self.model.observation_space, spaces.Dict)
        self.buffer_class = RecurrentDictRolloutBuffer if nested else RecurrentRolloutBuffer
        return Rollouts.make_buffer(self)

    def column_options(self) -> dict[str, Any]:
        options, model = super().column_options(), self.model
        if issubclass(model.rollout_buffer_class or RecurrentRolloutBuffer, RecurrentRolloutBuffer):
            options["hidden_state_shape"] = (model.n_steps, *model._state_shape)
        return options

    def sequence_length(self, longest: int | None) -> int:
        """Returns the length of sequences for any ``n_steps``: without a factor of about ``batch_size``, sequences are
        longer."""
        try:
            return super().sequence_length(longest)
        except ValueError:
            steps, rows = self.model.n_steps, self.model.batch_size
            length = min(n for n in range(rows, steps + 1) if steps % n == 0)
            warn_user(
                f"minibatches are made of equal sequences, but n_steps={steps} has no factor of about "
                f"batch_size={rows}: they have {length} steps. Use a multiple of batch_size.",
                UserWarning,
            )
            return length

    def minibatches(self) -> Callable[[int | None], Iterator[Any]]:
        """Equal sequences, which the learner reads, and not those of the buffer's ``get``."""
        buffer = self.buffer
        if type(buffer).get is not RecurrentRolloutBuffer.get:
            return super().minibatches()
        if self.model.learner.gathers_late:
            return cast(Callable[[int | None], Iterator[Any]], buffer.minibatches)
        return lambda size: (rows.gathered() for rows in buffer.minibatches(size))


@in_order(
    "learning_rate n_steps batch_size n_epochs gamma gae_lambda clip_range clip_range_vf normalize_advantage ent_coef "
    f"vf_coef max_grad_norm use_sde sde_sample_freq rollout_buffer_class rollout_buffer_kwargs target_kl {_TAIL}",
    log_interval=1,
)
class PPO(ppo.PPO, OnPolicyAlgorithm):
    """See :class:`polyak.PPO`."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = SINGLE_SPACES  # as in the peer

    made_of: ClassVar[MadeOf] = {"rollouts": TheirEpochs}


@in_order(
    "learning_rate n_steps batch_size n_epochs gamma gae_lambda clip_range clip_range_vf normalize_advantage ent_coef "
    f"vf_coef max_grad_norm rollout_buffer_class rollout_buffer_kwargs target_kl {_TAIL}"
)
class MaskablePPO(maskable_ppo.MaskablePPO, OnPolicyAlgorithm):
    """See :class:`polyak.MaskablePPO`. Its policies and buffers call masks ``action_masks``."""

    supports_masks: ClassVar[bool] = True
    policy_aliases = by_name(
        maskable_policies.MaskableActorCriticPolicy,
        maskable_policies.MaskableActorCriticCnnPolicy,
        maskable_policies.MaskableMultiInputActorCriticPolicy,
    )
    made_of: ClassVar[MadeOf] = {"rollouts": MaskableEpochs}
    _use_masking = True

    def learn(  # type: ignore[override]
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "MaskablePPO",
        reset_num_timesteps: bool = True,
        use_masking: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """See :meth:`polyak.algorithm.Algorithm.learn`.

        Args:
            total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar: see that method.
            use_masking: apply the masks; ``False`` allows any action.

        Raises:
            ValueError: the environment has no masks.
        """
        self._mask(use_masking)
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """Fill the rollout buffer; False if a callback stopped training.

        Raises:
            TypeError: the buffer does not store masks.
        """
        if not isinstance(rollout_buffer, MaskableRolloutBuffer):
            kind = type(rollout_buffer).__name__
            raise TypeError(f"rollout_buffer_class={kind} does not store masks. Extend MaskableRolloutBuffer.")
        self._mask(use_masking)
        return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    def predict(
        self,
        observation: Any,
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
        action_masks: Flags = None,
    ) -> tuple[np.ndarray, Memory]:
        """See :meth:`polyak.network_algorithm.NetworkAlgorithm.predict`."""
        return super().predict(observation, state, episode_start, deterministic, action_masks=action_masks)

    def _after_setup(self) -> None:
        super()._after_setup()
        if not isinstance(self.policy, maskable_policies.MaskableActorCriticPolicy):
            raise ValueError(f"policy={self.policy_class!r} takes no masks. Extend MaskableActorCriticPolicy.")

    # -- masks ---------------------------------------------------------------------------------------------------------

    def _mask(self, use_masking: bool) -> None:
        """Switch masks on or off; episodes begin again if that is a change."""
        if use_masking != self._use_masking:
            self._use_masking = use_masking
            if self.env is not None:
                self._make_runner()

    def _masks(self) -> Masks | None:
        return super()._masks() if self._use_masking else None

    @property
    def _needs_masks(self) -> bool:
        return self._use_masking

    def _make_runner(self) -> None:
        assert self.env is not None
        rows = FromVecEnv(self.env, raw=self.raw_experience, masks=self._masks())
        self.runner = _MaskNames(rows, self.make_actor(), self._split)


class _MaskNames(Runner):
    """Calls masks as sb3-contrib does."""

    def step(self) -> Step:
        step = super().step()
        if "masks" in step.extras:
            extras = {name: value for name, value in step.extras.items() if name not in ("masks", "next_masks")}
            step = step._replace(extras={**extras, MASKS: step.extras["masks"]})
        return step


class _Renaming(BaseAlgorithm):
    """Networks with sb3-contrib's names here, and polyak's names in its files."""

    @staticmethod
    def _renamed(tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors by the other names."""
        raise NotImplementedError

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        saved.networks = self._renamed(saved.networks)

    def _load_state(self, saved: Saved) -> None:
        saved.networks = self._renamed(saved.networks)
        super()._load_state(saved)

    def _parameters_of(self, given: Any) -> Mapping[str, Any]:
        values = super()._parameters_of(given)
        return values if isinstance(given, Mapping) else {**values, "policy": self._renamed(values["policy"])}


@in_order(
    "learning_rate n_steps batch_size n_epochs gamma gae_lambda clip_range clip_range_vf normalize_advantage ent_coef "
    f"vf_coef max_grad_norm use_sde sde_sample_freq target_kl {_TAIL}",
    log_interval=1,
)
class RecurrentPPO(_Renaming, recurrent_ppo.RecurrentPPO, OnPolicyAlgorithm):
    """See :class:`polyak.RecurrentPPO`. Its policies and buffers pass recurrent states as ``lstm_states``; its
    ``policy_kwargs`` are in sb3-contrib's words, and in polyak's in its files."""

    policy_aliases = by_name(
        recurrent_policies.RecurrentActorCriticPolicy,
        recurrent_policies.RecurrentActorCriticCnnPolicy,
        recurrent_policies.RecurrentMultiInputActorCriticPolicy,
        lstm="Lstm",
    )
    made_of: ClassVar[MadeOf] = {"rollouts": RecurrentEpochs}
    _renamed = staticmethod(renamed_memory)

    @property
    def _state_shape(self) -> tuple[int, int, int]:
        """Shape of the recurrent state in all environments: [K, N, H]."""
        policy: Any = self.policy
        layers, _, units = policy.lstm_hidden_state_shape
        return layers, self.n_envs, units

    @property
    def _last_lstm_states(self) -> RNNStates | None:
        """The recurrent state before the next step, [K, N, H] each; ``None`` before the first."""
        memory = None if self.runner is None else cast(Any, self.runner.actor).recall(self.runner.episode_starts)
        if memory is None:
            return None
        policy: Any = self.policy
        return policy.states_of(memory)

    # -- files ---------------------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        values = super().hyperparameters()
        if values.get("policy_kwargs"):
            values["policy_kwargs"] = recurrent_options.to_polyak(values["policy_kwargs"])
        return values

    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self:
        if options := hyperparameters.get("policy_kwargs"):
            hyperparameters = {**hyperparameters, "policy_kwargs": recurrent_options.to_contrib(options)}
        return super()._unbuilt(policy, device, hyperparameters)


class TheirTrustRegion(TheirRollouts, TrustRegion):
    """Rollouts in the peer's buffers, from which TRPO makes one step."""

    check_batch_size = TheirEpochs.check_batch_size


class TRPOLearner(trpo.TRPOLearner):
    """Makes the peer's random draws, and measures the KL divergence in the peer's direction."""

    def first_guess(self, gradient: torch.Tensor) -> torch.Tensor:
        return near_zero(gradient)

    def divergence(self, old: Any, new: Any) -> torch.Tensor:
        """KL(new || old) [B]"""
        return super().divergence(new, old)


@in_order(
    "learning_rate n_steps batch_size gamma cg_max_steps cg_damping line_search_shrinking_factor line_search_max_iter "
    "n_critic_updates gae_lambda use_sde sde_sample_freq rollout_buffer_class rollout_buffer_kwargs "
    f"normalize_advantage target_kl sub_sampling_factor {_TAIL}",
    log_interval=1,
)
class TRPO(trpo.TRPO, OnPolicyAlgorithm):
    """See :class:`polyak.TRPO`."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = SINGLE_SPACES  # as in the peer

    learner_class = TRPOLearner
    not_called: ClassVar[Mapping[str, str]] = {**BaseAlgorithm.not_called} | dict.fromkeys(
        ["_compute_actor_grad", "hessian_vector_product"],
        "the step is made by its learner. Give the class a learner_class that extends TRPOLearner, with ascent() or "
        "products() of your own",
    )
    made_of: ClassVar[MadeOf] = {"rollouts": TheirTrustRegion}

    def hessian_vector_product(
        self, params: Sequence[torch.Tensor], grad_kl: torch.Tensor, vector: torch.Tensor, retain_graph: bool = True
    ) -> torch.Tensor:
        """H v + ``cg_damping`` v, H the derivative of ``grad_kl`` [P] with respect to ``params``: [P]"""
        product = flat_grad((grad_kl * vector).sum(), params, retain_graph=retain_graph)
        return product + self.cg_damping * vector


class ARSLearner(ars.ARSLearner):
    """Uses the sample standard deviation of returns."""

    correction = 1


def tournament_loop(model: Any, callback: BaseCallback, log_interval: int | None) -> Loop:
    """Returns the loop of ARS, whose parts call the model's overrides."""
    loop = ars.TournamentLoop(model, callback, log_interval)
    if not _is_polyaks(model._update_current_progress_remaining):
        loop.tick = model._tick_within
    if not _is_polyaks(model._update_info_buffer):
        loop.note = lambda step: model._update_info_buffer(list(step.infos), step.dones)
    return loop


@in_order(
    "n_delta n_top learning_rate delta_std zero_policy alive_bonus_offset n_eval_episodes policy_kwargs "
    f"{_TAIL.replace('policy_kwargs verbose seed device', 'seed verbose device')}"
)
class ARS(ars.ARS, BaseAlgorithm):
    """See :class:`polyak.ARS`. Files and :meth:`get_parameters` have no optimizer."""

    loop: ClassVar[Callable[..., Loop]] = tournament_loop
    policy_aliases: ClassVar[Aliases] = {"MlpPolicy": policies.ARSPolicy, "LinearPolicy": policies.ARSLinearPolicy}
    learner_class = ARSLearner
    not_called: ClassVar[Mapping[str, str]] = {
        **BaseAlgorithm.not_called,
        **dict.fromkeys(
            ["_do_one_update", "evaluate_candidates"],
            "all environments play at once, each with a candidate of its own. Give the class a learner_class that "
            "extends ARSLearner, with candidates() or gradient_step() of your own",
        ),
        "_mimic_monitor_wrapper": "episodes are counted where environments step. Wrap the environment",
        "_trigger_callback": "callbacks are called at each step. Write a callback",
    }
    learn = with_defaults(ars.ARS.learn, tb_log_name="ARS")

    def _check_hyperparameters(self) -> None:
        if self.n_top is not None and self.n_top > self.n_delta:
            warn_user(
                f"n_top={self.n_top} is more than the n_delta={self.n_delta} directions that there are: all are used.",
                UserWarning,
            )
        self.n_top = self.n_delta if self.n_top is None else min(self.n_top, self.n_delta)
        super()._check_hyperparameters()

    def make_policy(self) -> Callable[[], Any]:
        """Returns a recipe for the policy, which is built without a learning rate."""
        return partial(self.policy_class, self.observation_space, self.action_space, **self._policy_options())

    def get_parameters(self) -> dict[str, Any]:
        return {name: part for name, part in super().get_parameters().items() if name != "policy.optimizer"}

    def _parameters_of(self, given: Any) -> Mapping[str, Any]:
        own = parameters(self.learner)
        return {"policy.optimizer": own["policy.optimizer"], **super()._parameters_of(given)}


_GREEDY = (
    f"{_REPLAY.replace('action_noise ', '')} target_update_interval exploration_fraction exploration_initial_eps "
    f"exploration_final_eps max_grad_norm {_TAIL}"
)


@in_order(_GREEDY, log_interval=4, batch_size=100)
class DQN(dqn.DQN, _Aliased):
    """See :class:`polyak.DQN`."""

    supports_masks: ClassVar[bool] = False  # as in the peer

    policy_aliases = by_name(policies.DQNPolicy, policies.DQNCnnPolicy, policies.DQNMultiInputPolicy)
    batch_norm_stats, batch_norm_stats_target = Statistics("q_net"), Statistics("q_net_target")


class QRDQNLearner(qrdqn.QRDQNLearner):
    """The learner for networks that return quantiles [B, N, A]."""

    def q_values(self, network: Any, observations: Obs) -> torch.Tensor:
        return self.quantiles(network, observations).mean(1)

    def quantiles(self, network: Any, observations: Obs) -> torch.Tensor:
        quantiles: torch.Tensor = network(observations)
        return quantiles


@in_order(_GREEDY, log_interval=4, batch_size=100)
class QRDQN(_Renaming, qrdqn.QRDQN, _Aliased):
    """See :class:`polyak.QRDQN`. Its networks have other names, which occur in no file of polyak."""

    supports_masks: ClassVar[bool] = False  # as in the peer

    policy_aliases = by_name(policies.QRDQNPolicy, policies.QRDQNCnnPolicy, policies.QRDQNMultiInputPolicy)
    learner_class = QRDQNLearner
    _renamed = staticmethod(renamed)
    quantile_net, quantile_net_target = Held("policy.quantile_net"), Held("policy.quantile_net_target")
    n_quantiles = Held("policy.n_quantiles")
    batch_norm_stats, batch_norm_stats_target = Statistics("quantile_net"), Statistics("quantile_net_target")

    def _policy_options(self) -> dict[str, Any]:
        options, default = super()._policy_options(), self._default_optimizer()
        if options.get("optimizer_class") is not None:
            return options
        return {"optimizer_kwargs": dict(default.kwargs), **options, "optimizer_class": default.cls}


@in_order(f"{_REPLAY} policy_delay target_policy_noise target_noise_clip {_TAIL}", log_interval=4, batch_size=100)
class TD3(td3.TD3, _Aliased):
    """See :class:`polyak.TD3`."""

    policy_aliases = by_name(policies.TD3Policy, policies.TD3CnnPolicy, policies.TD3MultiInputPolicy)
    actor_batch_norm_stats, actor_batch_norm_stats_target = Statistics("actor"), Statistics("actor_target")
    critic_batch_norm_stats, critic_batch_norm_stats_target = Statistics("critic"), Statistics("critic_target")


@in_order(f"{_REPLAY} {_TAIL.removeprefix('stats_window_size ')}", log_interval=4, batch_size=100)
class DDPG(ddpg.DDPG, TD3):
    """See :class:`polyak.DDPG`."""


class _Tempered(BaseAlgorithm):
    """Algorithms with an entropy coefficient, which programs read as attributes."""

    def _after_setup(self) -> None:
        super()._after_setup()
        self._put(target_entropy=self.learner.target_entropy)

    @property
    def ent_coef_optimizer(self) -> Optimizer | None:
        """The temperature's optimizer, if it is learned."""
        return self.learner.optimizers.get("ent_coef")

    @property
    def log_ent_coef(self) -> torch.Tensor | None:
        """The temperature's logarithm, if it is learned."""
        return getattr(self.learner, "log_ent_coef", None)

    @property
    def ent_coef_tensor(self) -> torch.Tensor:
        """The temperature, if it is fixed."""
        return self.learner.get_buffer("ent_coef")


@in_order(
    f"{_REPLAY} ent_coef target_update_interval target_entropy use_sde sde_sample_freq use_sde_at_warmup {_TAIL}",
    log_interval=4,
    batch_size=64,
)
class SAC(_Tempered, sac.SAC, _Aliased):
    """See :class:`polyak.SAC`."""

    policy_aliases = by_name(policies.SACPolicy, policies.SACCnnPolicy, policies.SACMultiInputPolicy)
    batch_norm_stats, batch_norm_stats_target = Statistics("critic"), Statistics("critic_target")


@in_order(
    f"{_REPLAY} ent_coef target_update_interval target_entropy top_quantiles_to_drop_per_net use_sde sde_sample_freq "
    f"use_sde_at_warmup {_TAIL}",
    log_interval=4,
    batch_size=64,
)
class TQC(tqc.TQC, SAC):
    """See :class:`polyak.TQC`."""

    policy_aliases = by_name(policies.TQCPolicy, policies.TQCCnnPolicy, policies.TQCMultiInputPolicy)


@in_order(
    f"{_REPLAY.replace('tau ', '')} ent_coef target_entropy policy_delay use_sde sde_sample_freq use_sde_at_warmup "
    f"{_TAIL}",
    log_interval=4,
    batch_size=64,
)
class CrossQ(_Tempered, crossq.CrossQ, _Aliased):
    """See :class:`polyak.CrossQ`."""

    policy_aliases = by_name(policies.CrossQPolicy)
