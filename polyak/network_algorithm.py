"""Base class of algorithms that train networks: policy, learner, actor and how they are connected."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from typing_extensions import Self

from polyak import formats
from polyak.algorithm import Algorithm, GymEnv, Recipe
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.collection import Collection
from polyak.checkpoint.damage import names_file
from polyak.checkpoint.parameters import parameters, restore, saved_parameters, set_parameters, store
from polyak.checkpoint.saved import Saved, prefixed
from polyak.checkpoint.serialise import encode
from polyak.collecting.actor import Actor
from polyak.collecting.exploration import ActingProgress, Exploration
from polyak.collecting.runner import Acting, Runner
from polyak.distributed.learners import LearnerGroup
from polyak.distributed.placement import check_placement, placement_of
from polyak.distributed.runners import RemoteActor, RemoteEnvs, RunnerGroup, envs_of_runners
from polyak.envs import VecEnv
from polyak.envs.adapters.counted import Counted
from polyak.envs.batched import BatchedVecEnv
from polyak.envs.masks import KEY, Masks, holds_masks, mask_size
from polyak.envs.nested_spaces import is_composed
from polyak.envs.wrappers.layers import turned_images
from polyak.envs.wrappers.transpose import VecTransposeImage
from polyak.experience.schema import Column
from polyak.hyperparameters.changing import Fixed, WithNetworks
from polyak.hyperparameters.declaration import Becomes, LearningRate, NonNegative, fitted, later, require
from polyak.hyperparameters.held import Held
from polyak.learning.engine.device import get_device
from polyak.learning.engine.engine import Engine
from polyak.learning.host import LearnerHost, Load, faster_device
from polyak.learning.learner import Learner, LearnerRecipe, OptimizerRecipe
from polyak.loops.clock import read_episodes
from polyak.loops.updates import Schedules, following
from polyak.nn.export.observations import Reader, image_keys
from polyak.nn.export.policy_graph import PolicyGraph
from polyak.nn.export.ports import Graph
from polyak.nn.policies.base import Network, Policy
from polyak.parts import episodes
from polyak.parts.acting import predict
from polyak.parts.cluster import Cluster
from polyak.schedules import FloatSchedule, Schedule, get_schedule_fn, is_constant, value_of
from polyak.suggestions import did_you_mean
from polyak.warning import advise

_NOMINAL_RUN = 1_000_000
"""Assumed number of environment steps of a run before it is known."""


OnDevice = Annotated[
    Becomes[torch.device | str | int, torch.device], Fixed("the networks are there already. Use load(path, {}=...).")
]
Compiled = Annotated[bool | Literal["auto", "replay"], Fixed("the engine is built with it. Use load(path, {}=...).")]
Precision = Annotated[Literal["float32", "bfloat16"], Fixed("the learner is built with it. Use load(path, {}=...).")]


@dataclass(eq=False, repr=False)
class NetworkAlgorithm(Algorithm):
    """Base class of algorithms with networks.

    Raises:
        TypeError: an unknown argument.
        ValueError: an argument out of range, an unknown policy, or a policy or action space that does not fit.
    """

    policy: Becomes[str | type[Policy], Policy] = later()
    """``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"`` or a policy class; once built, the policy itself."""
    env: Becomes[GymEnv | Recipe | None, VecEnv | None] = later()
    """An environment, a vector of environments, or a registered name; ``None`` for a model that only predicts. After
    construction the vectorised environment with every wrapper."""
    learning_rate: LearningRate = 3e-4
    """Step size of the optimizers: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    policy_kwargs: WithNetworks[dict[str, Any] | None] = None
    """Arguments of the policy (``net_arch``, ``activation_fn``, ``features_extractor_class`` ...) and of its optimizer
    (``optimizer_class``, ``optimizer_kwargs``)."""
    device: OnDevice = later("auto")
    """``"cpu"``, ``"cuda"`` or another torch device; ``"auto"`` takes a GPU if torch can use one and measured speeds
    predict that it is faster than the CPU for these networks and batch sizes."""
    compile: Compiled = "auto"
    """Run each gradient step as one program, with equal results up to rounding. ``"replay"`` replays its operations
    without a compiler; ``True`` compiles it, once for each machine, network and batch size; ``"auto"`` replays, and
    compiles in long runs; ``False`` runs it eagerly."""
    precision: Precision = "float32"
    """``"bfloat16"`` computes layers in half precision during gradient steps; parameters, losses and optimizers stay in
    float32. Useful for large networks on a GPU."""

    n_runners, n_learners, restarts_per_hour = cast(Any, 0), 1, 0  # defaults for algorithms that do not declare them
    transport, runner_timeout, placement = cast(Any, "ray"), cast("float | None", None), cast(Any, None)
    compression = cast(Any, None)
    policies: ClassVar[Mapping[str, Callable[..., Policy]]] = {}
    learner_class: ClassVar[type[Learner]] = Learner
    """The learner class, which computes losses and makes gradient steps. It declares the hyper-parameters that it
    reads: see :data:`~polyak.learning.learner.Tunable`."""
    lr_schedule = Held[Schedule]("schedules.rate")
    """``learning_rate`` as a function of the remaining progress."""
    _collection = Held[Collection | None]("clock.series")
    """The series of environment steps that is under way, or that was restored from a file."""
    engine = Held[Engine | None]("host.engine")
    """Runs gradient steps as compiled programs; its ``status`` describes whether it does, and if not, why."""

    def __post_init__(self, _init_setup_model: bool) -> None:
        self._progress = ActingProgress()
        self._rows_have_masks = False
        """Whether a file holds experience with masks, although the environments may not have given masks yet."""
        self._learners: LearnerGroup | None = None
        self._policy_name, self.policy = cast(Any, self.policy), cast(Any, None)
        super().__post_init__(_init_setup_model)

    def _read_arguments(self) -> None:
        super()._read_arguments()
        self.policy_class = _policy_class(self, self._policy_name)
        """The policy class or factory that ``policy`` names: called with the spaces and ``policy_kwargs``."""
        self.policy_kwargs = dict(self.policy_kwargs or {})
        self._device_name, self.device = str(self.device), get_device(self.device)
        self.host = LearnerHost(self._compiles, self.precision, print if self.verbose >= 1 else None)
        self.schedules = Schedules(get_schedule_fn(self.learning_rate))
        self.schedules.part_rates = getattr(self, "learning_rates", None) or {}
        if self.n_runners != 0 or self.n_learners > 1 or getattr(self, "n_replay_shards", 0) > 0:
            self.parts["cluster"] = Cluster(self)

    def _summary(self) -> dict[str, str]:
        engine = self.engine if "host" in vars(self) else None
        policy, card = vars(self).get("_policy_name"), super()._summary()
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", str(policy))
        steps = "not built yet" if engine is None else engine.status
        where = {"environment": card.pop("environment")} if "environment" in card else {}
        first = {**where, "policy": name}
        return {**first, **card, "device": str(self.device), "gradient steps": steps}

    # -- methods that subclasses override ------------------------------------------------------------------------------

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        options = self.policy_kwargs or {}
        for part in ("features_extractor", "optimizer"):
            cls, kwargs = options.get(f"{part}_class"), options.get(f"{part}_kwargs")
            fix = "pass the class itself, not its name."
            require(cls is None or callable(cls), f"policy_kwargs['{part}_class']", cls, fix)
            require(isinstance(kwargs, Mapping | None), f"policy_kwargs['{part}_kwargs']", kwargs, "it must be a dict.")
        if "l1" in (kwargs := options.get("optimizer_kwargs") or {}):
            fitted("policy_kwargs['optimizer_kwargs']['l1']", kwargs["l1"], NonNegative)
        freq: Any = getattr(self, "sde_sample_freq", -1)
        fix = "only noise that depends on the state is drawn so. Pass use_sde=True as well."
        require(freq != "episode" or getattr(self, "use_sde", False), "sde_sample_freq", freq, fix)
        check_placement(self.placement)
        shared = self.n_learners == 1 or self.learner_class.steps_are_shared
        fix = f"{type(self).__name__} learns from a rollout as a whole, in this process. Pass n_learners=1."
        require(shared, "n_learners", self.n_learners, fix)

    def _after_setup(self) -> None:
        """Hook for objects that depend on the learner."""

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        value, learner = getattr(self, name), getattr(self, "learner", None)
        if name == "learning_rate":
            self._setup_lr_schedule()
        if value is not None and isinstance(before, FloatSchedule):
            self._put(**{name: get_schedule_fn(value)})
        if self.runner is not None and any(name in part.explores_by for part in self.parts.values()):
            cast(Any, self.runner.actor).explore_next(self._exploration())
        if learner is None or name in learner.tunables or name not in learner.declared_tunables():
            if learner is not None:
                self.renew_schedules()
            return
        if isinstance(value, str):
            setattr(learner, name, value)
        else:
            learner.add_tunables(**{name: value})

    def _following(self) -> Callable[[], None]:
        """Returns the function that sets the learner's scheduled hyper-parameters to their present values."""
        return following(self)

    def renew_schedules(self) -> None:
        """Set the constant hyper-parameters on the learner, and collect those that follow schedules."""
        values = {name: getattr(self, name) for name in self.learner.tunables if name != "learning_rate"}
        self.schedules.moving = {name: value for name, value in values.items() if not is_constant(value)}
        self.schedules.part_rates = getattr(self, "learning_rates", None) or {}
        still = {name: value for name, value in values.items() if name not in self.schedules.moving}
        self.learner.set(**{name: value(1.0) if callable(value) else value for name, value in still.items()})

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        """Returns the gradient steps that so many environment steps bring, and their batch size; (0, 1) if unknown."""
        found = (part.expected_updates(timesteps) for part in self.parts.values())
        return next((updates for updates in found if updates is not None), (0, 1))

    # -- construction --------------------------------------------------------------------------------------------------

    def _policy_called(self, name: str) -> Callable[..., Policy]:
        if name not in self.policies:
            raise ValueError(
                f"Policy {name!r} unknown: {type(self).__name__} has {sorted(self.policies)}. Use one of them, or "
                f"pass a policy class.{did_you_mean(name, self.policies)}"
            )
        return self.policies[name]

    def make_policy(self) -> Callable[[], Any]:
        """Returns a picklable factory of the policy."""
        kwargs = {k: v for k, v in self._policy_options().items() if k not in ("optimizer_class", "optimizer_kwargs")}
        return partial(self.policy_class, self.observation_space, self.action_space, **kwargs)

    def _policy_options(self) -> dict[str, Any]:
        options = dict(self.policy_kwargs or {})
        for part in self.parts.values():
            options = part.policy_options(options)
        return options

    def make_optimizer(self) -> OptimizerRecipe:
        """Returns the optimizer that ``policy_kwargs`` names, or the algorithm's default."""
        options, default = self.policy_kwargs or {}, self._default_optimizer()
        cls, kwargs = options.get("optimizer_class") or default.cls, options.get("optimizer_kwargs")
        if kwargs is None:
            kwargs = default.kwargs if cls is default.cls else {}
        return OptimizerRecipe(cls, kwargs)

    def _default_optimizer(self) -> OptimizerRecipe:
        found = (part.optimizer() for part in self.parts.values())
        return next((recipe for recipe in found if recipe is not None), OptimizerRecipe(torch.optim.Adam))

    def learner_factory(self) -> Callable[[], Learner]:
        """Returns a picklable factory of the learner, which can be built in this process or another."""
        values = {name: _value_now(self, name) for name in self.learner_class.declared_tunables()}
        rate = value_of("learning_rate", self.lr_schedule, 1)
        return LearnerRecipe(self.learner_class, self.make_policy(), self.make_optimizer(), rate, values)

    def _build(self) -> None:
        self._setup_lr_schedule()
        learner = self.learner_factory()()
        if self._device_name == "auto" and self.device.type == "cuda":
            self.device = _faster_device(self, learner)
        self.learner: Learner = self.host.take(learner, self.device)
        self.policy = cast(Any, self.learner.policy)
        self._after_setup()
        if isinstance(self.env, BatchedVecEnv) and not self.in_tensors:
            advise(
                "environments in tensors",
                f"{type(self).__name__} copies each step of the environments to numpy: {self._why_numpy()}.",
            )

    @property
    def _compiles(self) -> bool | Literal["auto", "replay"]:
        """The ``compile`` option that the engine gets."""
        return False if self.n_learners > 1 and self.compile == "auto" else self.compile  # all learners alike

    def _setup_lr_schedule(self) -> None:
        self.lr_schedule = get_schedule_fn(self.learning_rate)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _check_built(self) -> None:
        super()._check_built()
        self.host.check_if_must(getattr(self, "learner", None), type(self).__name__)

    def _check_ready(self) -> None:
        super()._check_ready()
        self.host.check_if_must(getattr(self, "learner", None), type(self).__name__)

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        if (average := self.learner.average) is not None and average.acts:
            average.exchange(self.policy)
        self.host.expect(Load(*self._expected_updates(self.clock.planned)))
        if self.n_learners == 1:
            return
        if self._learners is None:
            self._learners = LearnerGroup(
                self.n_learners, self.transport, self.seed, placement_of(self.placement, "learners")
            )
            weakref.finalize(self, self._learners.close)
        self._learners.begin(self.learner)

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        learner, waits = getattr(self, "learner", None), self.in_tensors
        with self.host.at_work(learner, waits), super()._while_learning():
            yield
            read_episodes(self)

    # -- environments elsewhere ----------------------------------------------------------------------------------------

    def _vectorised(self, env: Any) -> VecEnv:
        if envs_of_runners(env) is None:
            if self.n_runners == 0:
                return super()._vectorised(env)
            options: Any = {"timeout": self.runner_timeout, "restarts": self.restarts_per_hour}
            options |= {"placement": placement_of(self.placement, "runners"), "compression": self.compression}
            env = RemoteEnvs(env, self.n_runners, self.transport, self.seed, **options)
        return env.normalized() if isinstance(env, RemoteEnvs) else env

    def _masks(self) -> Masks | None:
        return super()._masks() if envs_of_runners(self.env) is None else None  # runners find them

    @property
    def _envs_of_an_actor(self) -> int:
        """Number of environments per actor: all, or those of one runner."""
        return self.n_envs if (remote := envs_of_runners(self.env)) is None else remote.per_runner

    # -- environments in tensors ---------------------------------------------------------------------------------------

    @property
    def in_tensors(self) -> bool:
        """Whether experience is collected, stored and learned from as tensors, without transfers to the host."""
        return isinstance(self.env, BatchedVecEnv) and self._why_numpy() is None

    def _why_numpy(self) -> str | None:
        """Returns the reason why experience in tensors must be copied to numpy; ``None`` if it need not be."""
        assert isinstance(self.env, BatchedVecEnv)
        reasons = (part.why_numpy() for part in self.parts.values())
        if (own := next((why for why in reasons if why is not None), None)) is not None:
            return own
        if self.env.batch.device is None:
            return "they speak numpy"
        device = torch.device(self.env.batch.device)
        if device.type != self.device.type:
            return f"they are on {str(device)!r}, and the model is on {str(self.device)!r}. Pass device={str(device)!r}"
        if is_composed(self.action_space):
            return f"its actions are composed, {self.action_space}"
        for name, part in self._exploration().items():
            if part.in_tensors(self._acting_policy) is None:
                return f"there is no {name} of this kind in tensors"
        return None

    def _make_runner(self) -> None:
        if (remote := envs_of_runners(self.env)) is not None:
            actor: Any = self.make_actor()
            if not isinstance(actor, RemoteActor):
                remote.close()
                fix = f"{type(self).__name__} acts by what is in this process alone. Pass n_runners=0."
                require(False, "n_runners", self.n_runners, fix)
            group: Any = self._make_group(actor)
            self.runner, group.on_loss = group, partial(episodes.lost, self)
            group.updates = partial(getattr, self.clock, "updates")
            return
        if not self.in_tensors:
            super()._make_runner()
            return
        assert isinstance(self.env, BatchedVecEnv)
        batch = Counted(self.env.batch, self.stats_window_size, masks=self._uses_masks)
        self.runner = Runner(batch, self.make_actor(), self._split)

    def _make_group(self, actor: Any) -> RunnerGroup:
        """Returns the group of remote runners that collects experience."""
        assert self.env is not None
        return RunnerGroup(self.env, actor, self._progress, self._split, self._uses_masks, self.raw_experience)

    # -- acting --------------------------------------------------------------------------------------------------------

    @property
    def _acting_policy(self) -> Policy:
        """The behaviour policy."""
        return self.policy

    def make_actor(self) -> Acting:
        """Returns an actor with the present policy and the algorithm's exploration."""
        kind = Actor if envs_of_runners(self.env) is None else RemoteActor
        return kind(self._acting_policy, self._exploration(), in_tensors=self.in_tensors)

    def _exploration(self) -> dict[str, Exploration]:
        """Returns the exploration between policy and environments, by name, in the order of its calls."""
        return {name: one for part in self.parts.values() for name, one in part.exploration().items()}

    @property
    def _uses_masks(self) -> bool:
        return super()._uses_masks and self.policy.supports_masks

    def _columns(self) -> tuple[Column, ...]:
        """Returns the columns that are stored beside the usual ones: the recurrent state before each step, and action
        masks if the environments give them."""
        memory = self._acting_policy.initial_memory(1) or {}
        columns = [
            Column(name, value.numpy(force=True).dtype, tuple(value.shape[1:])) for name, value in memory.items()
        ]
        columns += [Column(name, np.float32, shape) for name, shape in self._acting_policy.stores.items()]
        size = mask_size(self.action_space)
        shown = self.runner is not None and self.runner.env.masked
        if size is not None and (shown or self._rows_have_masks):
            columns += [Column(name, np.bool_, (size,)) for part in self.parts.values() for name in part.stores_masks]
        return (*columns, *(column for part in self.parts.values() for column in part.columns()))

    def _start_episodes(self) -> None:
        super()._start_episodes()
        self._collection = None
        runner: Any = self.runner
        runner.actor.prepare(runner.obs)

    # -- learning and predicting ---------------------------------------------------------------------------------------

    predict = predict

    # -- exporting -----------------------------------------------------------------------------------------------------

    def acting_graph(
        self, masks: bool | None = None, channels_last: bool | None = None, stochastic: bool = False
    ) -> Graph:
        supported = self.supports_masks and self.policy.supports_masks and mask_size(self.action_space) is not None
        held = supported and holds_masks(self.observation_space, self.action_space)
        if masks is None:
            masks = supported and not held and not self._allows_everything
        masks_in = KEY if held and not masks else None
        return PolicyGraph(self.policy, _reader(self, channels_last), masks, masks_in, stochastic)

    # -- parameters and files ------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        return super().hyperparameters() | {"device": self._device_name}

    def get_parameters(self) -> dict[str, Any]:
        """Returns the state dicts of the policy and of each optimizer, under Stable-Baselines3's names."""
        return parameters(self.learner)

    @names_file
    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: torch.device | str = "auto"
    ) -> None:
        """Load weights into this model, in place.

        Args:
            load_path_or_dict: a saved model, also one of Stable-Baselines3, or the result of :meth:`get_parameters`.
            exact_match: require every object and every tensor; ``False`` loads those that are given.
            device: ignored for a dict; the device that a file's tensors are first loaded to.

        Raises:
            ValueError: an object that the model does not have, or, with ``exact_match``, a missing one.
            RuntimeError: with ``exact_match``, tensors are missing or have another shape; if they come from a file, the
                error is also a ValueError and names the file.
        """
        get_device(device)
        if not isinstance(load_path_or_dict, Mapping):
            load_path_or_dict = saved_parameters(checkpoint.read(load_path_or_dict, weights_only=True))
        set_parameters(self.learner, load_path_or_dict, exact_match)

    def save_sb3(self, path: Any) -> None:
        """Write the model to a file that Stable-Baselines3 2.9 loads, with equal predictions and further training.

        Statistics of ``VecNormalize`` and replay buffers are not included: see ``VecNormalize.save_sb3``. The state of
        other wrappers is not included, either, with a warning.

        Args:
            path: a path (``.zip`` is added to a name without a suffix) or a file opened for writing.

        Raises:
            ValueError: the model has something without an equivalent in SB3, such as a policy of polyak's own.
        """
        resolve_name(formats.MODEL_WRITERS["sb3"])(self, path)

    def _description(self) -> dict[str, Any]:
        policy = self._policy_name
        return {**super()._description(), "policy": policy if isinstance(policy, str) else encode(policy)}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        store(self.learner, saved)
        if self.runner is not None:
            saved.state |= prefixed("actor", self.runner.actor.state())
        if self._collection is not None:
            saved.info["collection"], arrays = self._collection.state()
            saved.state |= prefixed("collection", arrays)

    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self:
        return cls(policy, None, **hyperparameters, device=device, _init_setup_model=False)

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        self._load_learned(saved)
        if getattr(self, "use_sde", False):
            self.policy.reset_noise()  # with the standard deviations just loaded

    def _load_learned(self, saved: Saved) -> None:
        """Restore the learner's parameters and optimizers."""
        restore(self.learner, saved)

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if resume and self.runner is not None and saved.info["n_envs"] == self.n_envs:
            self.runner.actor.load_state(saved.state_of("actor"))
            if "collection" in saved.info:
                state = saved.info["collection"], saved.state_of("collection")
                device = cast(Any, self.runner).env.device if self.in_tensors else None
                self._collection = Collection.from_state(*state, device)
        for part in self.parts.values():
            part.resume(saved, resume)


def _policy_class(model: Any, policy: str | type[Policy]) -> Callable[..., Policy]:
    """Returns the policy class or factory that a constructor's ``policy`` names."""
    if isinstance(policy, str):
        found: Callable[..., Policy] = model._policy_called(policy)
        return found
    is_other = isinstance(policy, torch.nn.Module) or (isinstance(policy, type) and not issubclass(policy, Network))
    fix = f"it must be one of {', '.join(map(repr, sorted(model.policies)))}, or a subclass of Policy."
    require(callable(policy) and not is_other, "policy", policy, fix)
    return policy


def _value_now(model: Any, name: str) -> Any:
    """Returns a hyper-parameter's value at the present progress of training."""
    value = getattr(model, name)
    return value_of(name, value, model.clock.remaining) if callable(value) else value


def _faster_device(model: Any, learner: Learner) -> torch.device:
    """Returns the GPU or the CPU, whichever is predicted to run this learner's steps faster."""
    if isinstance(model.env, BatchedVecEnv) and model.env.batch.device is not None:
        return torch.device(model.env.batch.device)
    choice = faster_device(learner, Load(*model._expected_updates(_NOMINAL_RUN)), _NOMINAL_RUN, model.n_envs)
    if choice is None:
        return torch.device(model.device)
    if model.verbose >= 1:
        print(choice)
    return torch.device(choice.device)


def _reader(model: Any, channels_last: bool | None) -> Reader:
    """Returns the conversion from the environment's observations to the policy's inputs."""
    if model.normalisation.of_observations is not None:
        what = "an exported graph reads observations of an environment without VecNormalize"
        model.normalisation.check_nothing_above(what, besides=VecTransposeImage.__name__)
        model.normalisation.check_own_maps(what)
    if channels_last is None:
        turned: Sequence[str | None] = turned_images(model.env)
    else:
        turned = image_keys(model.observation_space) if channels_last else ()
    return Reader(model.observation_space, model.normalisation.known, turned)
