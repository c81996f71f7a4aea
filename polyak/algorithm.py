"""The face of every algorithm: ``learn``, ``predict``, ``save``, ``load``, callbacks and logs.

An algorithm is a dataclass: each hyper-parameter is written once, with its type and range, default and meaning. The
constructor and its checks, ``help``, the learner, the command line, the documentation and the checkpoint all read that.

The face presumes neither networks nor a compiler. Algorithms that train networks derive from
:class:`~polyak.network_algorithm.NetworkAlgorithm`. An algorithm that does not step environments itself, because it
searches games or a data generator acts for it, sets :attr:`~Algorithm.steps_environments` to False.
"""

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, fields
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from typing_extensions import Self

from polyak.arrays import Flags, Memory, Predicted
from polyak.callbacks.attached import as_callback
from polyak.callbacks.callback import BaseCallback, MaybeCallback
from polyak.checkpoint import exporting
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.environments import load_statistics, restore_environments, save_environments, save_statistics
from polyak.checkpoint.saved import Saved, check_counter, prefixed
from polyak.collecting.runner import Acting, Runner
from polyak.collecting.time_split import TimeSplit
from polyak.envs import VecEnv, VecEnvWrapper, VecNormalize, as_vec_env
from polyak.envs.action_spaces import FROM_DATA, TAKE, check_action_space
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.masks import Masks, find_masks
from polyak.envs.normalisation import Normalisation
from polyak.envs.spaces import SpaceError, check_for_correct_spaces
from polyak.envs.wrappers.layers import PartNormalizer
from polyak.experience import Dataset
from polyak.experience.step import Observations
from polyak.hyperparameters.changing import Fixed, change, checked_names, inherited
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Natural,
    Seed,
    check_names,
    declared,
    fitted,
    lacking,
    later,
    names_checked,
    require,
)
from polyak.hyperparameters.docstrings import FOR_AUTHORS, Documentation, Listed, Signature
from polyak.hyperparameters.held import Held
from polyak.logging.logger import Logger, configure_logger
from polyak.loops.clock import Clock, EpisodeStatistics, write_logs
from polyak.loops.training import Loop, Training, watched
from polyak.parts import episodes
from polyak.parts.part import MadeOf, Part
from polyak.seeding import set_random_seed
from polyak.warning import advise, warn_user

GymEnv = gym.Env | VecEnv | gym.vector.VectorEnv
Recipe = str | Callable[..., Any]
"""The recipe of an environment: a registered name, or a function, which requires runners (``n_runners``)."""


class _Loader(classmethod):
    """The ``load`` class method, which warns when it is called on a model: that model stays unchanged."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is not None:
            advise(
                "load on an instance",
                "load() returns a new model and leaves the one that it is called on as it was. Write `model = "
                f"{type(instance).__name__}.load(path)`, or `model.set_parameters(path)` to change this model.",
            )
        return super().__get__(None, type(instance) if owner is None else owner)


STEPS_OF_LOOPS = frozenset(
    ("collect", "_iterate", "_take", "_store", "_make_step", "_is_collected", "_updates_due", "_record_means")
)
"""Former names of methods that loops have replaced. A subclass that defines one of them gets a warning."""
WITH_PARTS = frozenset(
    (
        *("lesson", "_writer", "_minibatches", "_make_rollout_buffer", "_updates_per_rollout", "_make_replay_buffer"),
        *("_replay_dataset", "_with_columns", "_buffer_options", "updates", "storing", "after_step", "watching"),
        *("beginning", "completing", "kept", "built_with", "kept_as_schedules"),
    )
)
"""Names that parts or fields have replaced."""


@dataclass(eq=False, repr=False)
class Algorithm(metaclass=Listed):
    """Base class of all algorithms.

    A subclass defines its :attr:`loop`, the parts that it is :attr:`made_of`, and :meth:`predict`.

    Raises:
        TypeError: an unknown argument.
        ValueError: an argument out of range.
    """

    _: KW_ONLY
    stats_window_size: Count = 100
    """Number of most recent episodes over which return, length and success rate are averaged in the logs."""
    tensorboard_log: Becomes[str | os.PathLike[str] | None, str | None] = later(None)
    """Folder for TensorBoard files; ``None`` writes none."""
    verbose: Natural | bool = 0
    """0 prints nothing, 1 the training table and added wrappers, 2 debugging messages too."""
    seed: Annotated[
        Seed | None, Fixed("it has been used. Call model.set_random_seed(seed), or load(path, {}=...).")
    ] = None
    """Seeds python, numpy, torch, the environments and the action space."""
    _init_setup_model: InitVar[bool] = True
    """Build networks, buffers and runner at once; ``False`` leaves this to a later ``_setup_model()``."""

    loop: ClassVar[Callable[..., Loop]]
    """Creates the training loop from a model, a callback and ``log_interval``. The loop orders collection, learning and
    logging within one call of ``learn``. See :mod:`polyak.loops`."""
    made_of: ClassVar[MadeOf] = {}
    """Name -> factory of the part. Parts of the base classes are inherited unless a subclass reuses their name. See
    :mod:`polyak.parts.part`."""
    goes_without: ClassVar[tuple[str, ...]] = ()
    """Arguments of related algorithms that this one does not support, unless it declares them as fields: constructors
    reject them, and files of earlier versions may hold them."""
    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Space,)
    """Action spaces that the algorithm supports."""
    steps_environments: ClassVar[bool] = True
    """Whether the algorithm takes ``env`` and learns by stepping it itself. False for game search, and for imitation,
    where a data generator acts."""
    supports_masks: ClassVar[bool] = False
    """Whether the algorithm never takes actions that the environment forbids: see :mod:`polyak.envs.masks`."""
    # Without annotations, since these are no hyper-parameters; subclasses that take ``env`` declare it as one.
    num_timesteps = Held[int]("clock.steps")
    """Environment steps so far, over all environments; in offline training, gradient steps."""
    _total_timesteps = Held[int]("clock.total")
    _num_timesteps_at_start = Held[int]("clock.started_at")
    _n_updates = Held[int]("clock.updates")
    _episode_num = Held[int]("clock.episodes")
    _current_progress_remaining = Held[float]("clock.remaining")
    start_time = Held[float]("clock.began")
    """When the last call of :meth:`learn` began, in nanoseconds since 1970."""
    ep_info_buffer = Held[deque[dict[str, Any]]]("statistics.episodes")
    """The last ``stats_window_size`` episodes: return ``"r"``, length ``"l"``, and further values of their monitor."""
    ep_success_buffer = Held[deque[float]]("statistics.successes")
    """Success (1) or failure (0) of these episodes, if the environments report it (``info["is_success"]``)."""
    env = cast("Becomes[GymEnv | str | None, VecEnv | None]", None)
    learns_offline = False
    """Whether the model learns from a dataset without an environment."""
    log_every = 1
    """The interval that ``log_interval="auto"`` stands for."""
    n_envs = 1
    """Number of environments that the model steps."""
    runner = cast("Runner | None", None)
    _vec_normalize_env = Held[VecNormalize | PartNormalizer | None]("normalisation.replay")
    """The normalisation that is applied to replayed experience."""
    _saved_without_masks = False
    """Whether the model's file holds the state of a runner without action masks."""
    _would_replay = False
    """Whether the model was loaded and its environments would start again with the seeds given before."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        setattr(cls, "__doc__", Documentation(cls.__doc__))  # noqa: B010  # type checkers see a text
        if lost := sorted(STEPS_OF_LOOPS & vars(cls).keys()):
            warn_user(
                f"{cls.__name__}.{lost[0]}() is never called: steps of a training are no methods of a model. Name "
                "a loop (loop = ...), or a part with functions that the loop calls (made_of = ...)."
            )
        if lost := sorted(WITH_PARTS & vars(cls).keys()):
            warn_user(
                f"{cls.__name__}.{lost[0]} is never read: it belongs to a part of the model (made_of = ...), or to the "
                "field that it is about. See polyak.parts.part and polyak.hyperparameters.changing."
            )
        if isinstance(learn := vars(cls).get("learn"), FunctionType) and not hasattr(learn, "__wrapped__"):
            setattr(cls, "learn", names_checked(learn))  # noqa: B010

    if not TYPE_CHECKING:  # type checkers read the constructors themselves

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            check_names(cls, kwargs)
            if len(args) + ("policy" in kwargs) == 1:
                _check_env_is_given(cls, args[0] if args else kwargs["policy"], kwargs)
            return super().__new__(cls)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in checked_names(type(self)) and "_is_built" in vars(self):
                change(self, name, value)
            else:
                object.__setattr__(self, name, value)

    def __post_init__(self, _init_setup_model: bool) -> None:
        env, self.env = self.env, None
        self.parts: dict[str, Part] = {}
        for name, make in inherited(type(self), "made_of").items():
            self.parts[name] = part = make(self)
            setattr(self, name, part)
        self.normalisation = Normalisation()
        _check_no_policy(type(self), env)
        self._check_types()
        self._check_hyperparameters()
        self.observation_space: spaces.Space
        """Observation space of one environment, after wrappers."""
        self.action_space: spaces.Space
        """Action space of one environment."""
        self.clock = Clock()
        self._logger: Logger | None = None
        self._custom_logger = False
        self.statistics = EpisodeStatistics(self.stats_window_size)
        self._split = TimeSplit()
        self._read_arguments()
        if env is not None:
            self._attach_env(env)
            if _init_setup_model:
                self._setup_model()
                self._check_built()

    def __repr__(self) -> str:
        lines = [f"  {what:<15} {' '.join(text.split())}" for what, text in self._summary().items()]
        return "\n".join([f"{type(self).__name__}:", *lines])

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__()} - FOR_AUTHORS - vars(self).get("parts", {}).keys())

    def _summary(self) -> dict[str, str]:
        """Returns the lines of ``repr``, label -> text; works for models that are not built yet, too."""
        steps = f"{getattr(self, 'num_timesteps', 0):,} steps, {getattr(self, '_n_updates', 0):,} updates"
        names = {"observations": "observation_space", "actions": "action_space"}
        found = {what: str(vars(self)[name]) for what, name in names.items() if name in vars(self)}
        card = {**found, "trained": steps}
        for part in vars(self).get("parts", {}).values():
            card |= part.summary()
        if not self.steps_environments:
            return card
        env = vars(self).get("env")
        where = "none" if env is None else f"{env.num_envs} x {_name_of(env.unwrapped)} in {_layers(env)}"
        return {"environment": where, **card}

    def _check_types(self) -> None:
        for name, declaration in declared(type(self)).items():
            if name not in ("policy", "env"):  # which _read_arguments and _attach_env convert
                setattr(self, name, fitted(name, getattr(self, name), declaration))
        self.tensorboard_log = _plain(self.tensorboard_log)

    # -- methods that subclasses override ------------------------------------------------------------------------------

    def predict(
        self, observation: Any, state: Memory = None, episode_start: Flags = None, deterministic: bool = False
    ) -> Predicted:
        """Returns the action for one observation or a batch of them, and the next recurrent state."""
        raise NotImplementedError

    def _check_hyperparameters(self) -> None:
        """Refuse invalid combinations of hyper-parameters, which annotations cannot express, before the build."""
        for part in self.parts.values():
            part.check()

    def _read_arguments(self) -> None:
        """Convert checked arguments, before the environments are made."""

    def _setup_model(self) -> None:
        """Seed the random generators, then build networks, runner and parts."""
        if self.seed is not None:
            self.set_random_seed(self.seed)
        for part in self.parts.values():
            part.prepare()
        self._build()
        if self.env is not None and self._acts:
            self._make_runner()
        for part in self.parts.values():
            part.build()

    def _build(self) -> None:
        """Build networks, tables or models, before the runner."""

    def make_actor(self) -> Acting:
        """Returns the actor, which chooses actions while experience is collected."""
        raise NotImplementedError

    def _check_built(self) -> None:
        """Refuse a model that cannot be trained as it was built by the constructor's :meth:`_setup_model`."""
        for part in self.parts.values():
            part.check_ready(first=True)
        self._call_built()

    def _call_built(self) -> None:
        """Mark the model as built: hyper-parameters that are set from now on take effect at the next update, or are
        refused. See :mod:`polyak.hyperparameters.changing`."""
        self._is_built = True

    def _put(self, **values: Any) -> None:
        """Set hyper-parameters without checks and without consequences, for changes that the model makes itself."""
        vars(self).update(values)

    def _adopt(self, name: str, before: Any) -> None:
        """Update what was built after a hyper-parameter was set; ``before`` is its previous value. If this raises, the
        previous value is restored."""
        if name == "tensorboard_log":
            self.tensorboard_log = _plain(self.tensorboard_log)
        if name == "stats_window_size":
            self.statistics.resize(self.stats_window_size)
        for part in self.parts.values():
            part.adopt(name, before)

    # -- environments --------------------------------------------------------------------------------------------------

    def _attach_env(self, env: Any) -> None:
        """Set up the environment or dataset that the constructor was given as ``env``."""
        if any(part.attach(env) for part in self.parts.values()):
            return
        if isinstance(env, Dataset):
            raise ValueError(
                f"env={env!r:.200} is a dataset, but {type(self).__name__} learns by acting. Pass an environment, or "
                f"learn from it with {FROM_DATA.get(type(env.action_space), 'BC')}."
            )
        self._use_env(self._vectorised(env))

    def _vectorised(self, env: Any) -> VecEnv:
        """Returns an environment that a user passed as a vectorised environment."""
        return as_vec_env(env, verbose=self.verbose)

    @property
    def raw_experience(self) -> bool:
        """Whether observations and rewards are stored before normalisation."""
        return any(part.raw for part in self.parts.values())

    @property
    def saves_also(self) -> frozenset[str]:
        """The names of optional contents that :meth:`save` writes only if ``include`` lists them."""
        return frozenset(name for part in self.parts.values() for name in part.saves_also)

    @property
    def _acts(self) -> bool:
        """Whether learning requires an environment to act in."""
        return self.steps_environments and not self.learns_offline

    def _use_env(self, env: VecEnv) -> None:
        self._check_action_space(env.action_space)
        self._put(env=env)
        self.n_envs = env.num_envs
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.normalisation.use(env, self.raw_experience)

    def _make_runner(self) -> None:
        """Create the runner, which steps the environment with the actor."""
        assert self.env is not None
        rows = FromVecEnv(self.env, raw=self.raw_experience, masks=self._masks())
        self.runner = Runner(rows, self.make_actor(), self._split)

    def _masks(self) -> Masks | None:
        """Returns the action masks of the environments; ``None`` if every action is always allowed."""
        assert self.env is not None
        masks = find_masks(self.env)
        if masks is None or self._uses_masks:
            return masks
        advise(
            "forbidden actions",
            f"the environment says which actions it allows, but {type(self).__name__} does not support masks and will "
            "take others, too. Use an algorithm that does: PPO, A2C, TRPO, PQN, DQN and its family.",
        )
        return None

    @property
    def _uses_masks(self) -> bool:
        return self.supports_masks

    def _check_action_space(self, space: spaces.Space) -> None:
        explores_by_one, others = "rollouts" in self.parts, FROM_DATA if "units" in self.parts else TAKE
        check_action_space(type(self).__name__, space, self.action_spaces, others, explores_by_one)

    def get_env(self) -> VecEnv | None:
        """The vectorised environment, with every wrapper."""
        return self.env

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """The normalising wrapper among the environment's wrappers, if any."""
        return self.normalisation.own

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        """Continue in another environment of the same spaces.

        Args:
            env: the new environment; ``n_envs`` must not change once the model has learned with the old one.
            force_reset: start new episodes at the next ``learn``; ``False`` continues from the last observations.

        Raises:
            ValueError: the spaces or the number of environments differ.
        """
        vec_env, before, runner = self._with_statistics(self._vectorised(env)), self.env, self.runner
        if self.learns_offline:
            self.n_envs = vec_env.num_envs
        if vec_env.num_envs != self.n_envs:
            raise SpaceError(
                f"env has {vec_env.num_envs} environments, but the model was built for n_envs={self.n_envs}, which "
                f"set_env() keeps. To change it, use {type(self).__name__}.load(path, env=env)."
            )
        check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
        state = self.runner.state() if self.runner is not None and not force_reset else {}
        self._use_env(vec_env)
        self._make_runner()
        assert self.runner is not None
        self.runner.load_state(state)
        try:
            for part in self.parts.values():
                part.change_env()
        except ValueError:
            if before is not None:
                self._use_env(before)
                self.runner = runner
            raise

    def _with_statistics(self, env: VecEnv) -> VecEnv:
        """Returns ``env`` wrapped in the normalisation that the model was trained with."""
        for part in self.parts.values():
            part.check_env(env)
        return self.normalisation.put_around(env, self.num_timesteps)

    @property
    def _last_obs(self) -> Observations | None:
        return self.runner.obs if self.runner is not None else None

    @_last_obs.setter
    def _last_obs(self, value: Observations | None) -> None:
        if self.runner is not None:
            self.runner.take_up(value)

    @property
    def _last_episode_starts(self) -> np.ndarray | None:
        return self.runner.episode_starts if self.runner is not None else None

    @_last_episode_starts.setter
    def _last_episode_starts(self, value: np.ndarray) -> None:
        if self.runner is not None:
            self.runner.episode_starts = value

    @property
    def _last_original_obs(self) -> Observations | None:
        return self.runner.original_obs if self.runner is not None else None

    # -- hooks around learning -----------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        """Refuse, at the start of ``learn``, a model that cannot be trained."""
        if self._acts and self.env is None:
            raise ValueError(
                "env=None: this model has no environment to learn in. Pass one: "
                f"`{type(self).__name__}.load(path, env=...)` or `model.set_env(env)`."
            )
        for part in self.parts.values():
            part.check_ready(first=False)

    def _prepare_to_learn(self, reset: bool) -> None:
        """Prepare parts and episodes before the first iteration; ``reset``: the counters were set to zero."""
        if self._acts:
            episodes.take_up(self, reset)
        for part in self.parts.values():
            part.begin(reset)

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        """Context of all iterations of one call of ``learn``."""
        try:
            with self.normalisation.changing():
                yield
        finally:
            if self.runner is not None:
                self.runner.close_thread()

    def _start_episodes(self) -> None:
        """Reset the environments, even in the middle of an episode."""
        episodes.begin(self)

    # -- learning ------------------------------------------------------------------------------------------------------

    @names_checked
    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | Literal["auto"] | None = "auto",
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        eval_env: GymEnv | str | None = None,
        eval_freq: int | None = None,
        n_eval_episodes: int = 10,
    ) -> Self:
        """Train on environment experience, on a dataset, or on both.

        Args:
            total_timesteps: environment steps to make, over all environments: a lower bound, since a rollout that has
                begun is finished; in offline training, gradient steps. Algorithms that collect whole episodes finish
                the current one, too, unless no episode has ended for 100,000 steps: training then ends with a warning.
            callback: called at every step; a function, a callback object, or a list of them.
            log_interval: between two log tables: iterations (on-policy), episodes (off-policy), or, in offline
                training, iterations of 500 gradient steps; ``"auto"``: the algorithm's :attr:`log_every`; ``None``
                writes none.
            tb_log_name: name of the run's folder under ``tensorboard_log``; ``None`` takes the algorithm's name.
            reset_num_timesteps: start counting at zero; ``False`` continues the counters and logs.
            progress_bar: show a progress bar; needs ``polyak[extra]``.
            eval_env: environment, or its registered name, to evaluate in during training; ``None``: no evaluation.
            eval_freq: steps between two evaluations; ``None``: ten in all.
            n_eval_episodes: episodes of each evaluation.

        Returns:
            the model itself.

        Raises:
            ValueError: the model has nothing to learn from, such as an environment, or an argument is out of range.
        """
        callback = watched(callback, eval_env, eval_freq, n_eval_episodes, total_timesteps)
        training = Training(
            self, total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
        )
        with training.under_way() as loop:
            goes_on = self.clock.series is not None  # a loaded model may be in the middle of its last iteration
            while (goes_on or self.clock.steps < self.clock.total) and loop.iterate():
                goes_on = False
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        """Reset counters, statistics and logger, and attach the callback, for a call of ``learn``."""
        self._call_built()  # programs may have called _setup_model() themselves
        self._check_ready()
        self.start_time, self.clock.iterations = time.time_ns(), 0
        self._split.start()
        if reset_num_timesteps:
            self.num_timesteps = self._episode_num = 0
            self.statistics.clear()
        else:
            total_timesteps += self.num_timesteps
        self._total_timesteps, self._num_timesteps_at_start = total_timesteps, self.num_timesteps
        self._prepare_to_learn(reset_num_timesteps)
        if not self._custom_logger:
            self._logger = configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        return total_timesteps, self._init_callback(callback, progress_bar)

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        """Returns the ``callback`` argument of :meth:`learn` as one callback attached to this model."""
        return as_callback(callback, self, progress_bar)

    def _callback_locals(self, **names: Any) -> dict[str, Any]:
        """Returns the variables that a callback finds in ``self.locals``."""
        return {"self": self, "env": self.get_env(), "total_timesteps": self._total_timesteps, **names}

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed python, numpy, torch, the environments and the action space; ``None`` does nothing."""
        if seed is not None:
            self._seed(seed)

    def _seed(self, seed: int) -> None:
        set_random_seed(seed, using_cuda=str(getattr(self, "device", "cpu")).startswith("cuda"))
        self.action_space.seed(seed)
        self._would_replay = False
        if self.env is not None and self._acts:
            self.env.seed(seed)

    # -- observations before normalisation -----------------------------------------------------------------------------

    def as_shown(self, observations: Any) -> Any:
        """Converts observations of an environment without wrappers to those that :meth:`predict` takes: see
        :func:`~polyak.envs.normalisation_scale.shown_to`.

        Args:
            observations: one or a batch, before ``VecNormalize``.

        Raises:
            ValueError: wrappers around ``VecNormalize`` change observations further.
        """
        return self.normalisation.shown(observations)

    def _as_learned(self, observation: Any) -> Any:
        return self.normalisation.as_learned(observation, self.observation_space)

    # -- logging -------------------------------------------------------------------------------------------------------

    @property
    def logger(self) -> Logger:
        """The logger that training writes to; available after the first ``learn`` or :meth:`set_logger`."""
        if self._logger is None:
            raise AttributeError("the model has no logger before learn(); call set_logger() to give it one.")
        return self._logger

    def set_logger(self, logger: Logger) -> None:
        """Use ``logger`` instead of the one that ``verbose`` and ``tensorboard_log`` configure.

        Raises:
            ValueError: it has no ``record`` and ``dump``.
        """
        fix = "give a Logger, such as configure(folder, ['stdout', 'csv']) makes."
        require(hasattr(logger, "record") and hasattr(logger, "dump"), "logger", logger, fix)
        self._logger, self._custom_logger = logger, True

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the statistics of finished episodes, the speed and whatever was recorded since the last dump.

        Args:
            iteration: number of this rollout, to log; 0 logs none.
        """
        write_logs(self, {"iterations": iteration} if iteration > 0 else {})

    @property
    def time_split(self) -> dict[str, float]:
        """Wall time in seconds of the last or present call of :meth:`learn`, split into ``env``, ``inference``,
        ``copy``, ``sample``, ``update`` and ``other``, which add up to the total. See
        :mod:`polyak.collecting.time_split`."""
        return self._split.seconds()

    # -- files ---------------------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        """Returns every hyper-parameter with its present value."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("policy", "env")}
        for part in self.parts.values():
            part.arguments(values)
        return values

    def _description(self) -> dict[str, Any]:
        """Returns the JSON values that a file needs to rebuild a model, without spaces, counters, hyper-parameters."""
        return {"n_envs": self.n_envs}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        """Write learned parameters, the state that resuming needs, and what ``include`` lists into a file."""
        if self.runner is not None:
            saved.state |= prefixed("runner", self.runner.state())
            save_environments(saved, self.runner)
        self._save_statistics(saved)
        for part in self.parts.values():
            part.save(saved, include)

    def _save_statistics(self, saved: Saved) -> None:
        """Write the statistics of ``VecNormalize`` that the model was trained with."""
        save_statistics(saved, self.normalisation)

    def _extra_state(self) -> dict[str, Any]:
        """Returns the small JSON values of the parts that a file must hold for training to resume unchanged."""
        state: dict[str, Any] = {}
        for part in self.parts.values():
            state |= part.state()
        return state

    @classmethod
    def _takes(cls, name: str) -> bool:
        """Whether :meth:`_unbuilt` accepts an argument of this name."""
        return name in {f.name for f in fields(cls)}

    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self:
        """Returns a model with a file's hyper-parameters, before :meth:`_setup_model`."""
        return cls(**hyperparameters, _init_setup_model=False)

    def _enter(self, saved: Saved, env: Any) -> None:
        """Set up the number of environments and the statistics from a file, and the environment to continue in.

        Raises:
            ValueError: the environment does not fit the file, or the algorithm uses none.
        """
        if not self.steps_environments:
            if env is not None:
                raise ValueError(f"env={env!r} cannot be used: {type(self).__name__} learns without an environment.")
            return
        check_counter("n_envs", saved.info["n_envs"], least=1)
        self.n_envs = int(saved.info["n_envs"])
        acted = saved.state_of("runner")
        self._saved_without_masks = bool(acted) and not any(name.startswith("allowed") for name in acted)
        load_statistics(saved, self.normalisation)
        if env is not None and not any(part.attach(env) for part in self.parts.values()):
            vec_env = self._with_statistics(self._vectorised(env))
            check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
            self._use_env(vec_env)

    def _load_state(self, saved: Saved) -> None:
        """Restore the learned parameters that :meth:`_save_state` wrote."""
        for part in self.parts.values():
            part.load(saved)

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the values that :meth:`_extra_state` returned."""
        for part in self.parts.values():
            part.load_state(state)

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        """Restore the state of collection: environments with ``resume``, last observations without ``force_reset``."""
        if self.runner is None:
            return
        self._would_replay = self.num_timesteps > 0
        exact = resume and saved.info["n_envs"] == self.n_envs and restore_environments(saved, self.runner)
        if exact or not force_reset:
            state = saved.state_of("runner")
            if exact and "allowed" in state and not self.runner.env.masked:
                episodes.take_masks(self, state["allowed"])
            self.runner.load_state(state)
            if resume and self.seed is not None:  # the seed has been used: later resets must not repeat it
                assert self.env is not None
                self.env.unwrapped._reset_seeds()
        elif resume:
            episodes.seed_further(self)

    def save(self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None) -> None:
        """Write the model to one file: hyper-parameters, learned parameters and the state of training. Loading the file
        does not run code from it.

        Args:
            path: a path (``.zip`` is added to a name without a suffix) or a file opened for writing.
            exclude: hyper-parameters or counters to leave out.
            include: further things to save: ``"replay_buffer"``; a name in both lists is saved.

        Raises:
            ValueError: ``include`` names something that cannot be saved this way, or ``exclude`` names nothing that the
                model has.
        """
        checkpoint.save(self, path, exclude=set(exclude or ()), include=set(include or ()))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        masks: bool | None = None,
        channels_last: bool | None = None,
        stochastic: bool = False,
    ) -> dict[str, Any]:
        """Write the policy to one file that runs without polyak: a graph from observations of the environment to
        actions for the environment, for any batch size.

        The graph contains the normalisation of ``VecNormalize``, image channel order and scaling, one-hot encoding, and
        scaling, clipping and rounding of actions. Recurrent state is an input and an output. The file appears under its
        name once it is complete. It contains its JSON description: under ``polyak`` in the metadata of an ONNX file,
        and as the extra file ``polyak.json`` of a ``.pt2``. See ``docs/deployment.md``.

        Args:
            path: ends with ``.onnx`` (needs ``polyak[onnx]``) or ``.pt2`` (``torch.export``).
            masks: whether action masks [B, M] are an input. ``None``: if the policy supports masks, unless the model's
                environment is known to give none, or gives them inside its observations, from which the graph reads
                them.
            channels_last: whether images are (H, W, C) although the policy takes (C, H, W); ``None``: as the model's
                environment gives them, and (C, H, W) without an environment.
            stochastic: sample actions, with random numbers as further inputs; otherwise actions are deterministic.

        Returns:
            the description: inputs and outputs, and the spaces.

        Raises:
            ValueError: another suffix, a model that does not act by one graph, wrappers around ``VecNormalize`` that
                change observations, or ``masks``, ``channels_last`` or ``stochastic`` if the model does not support it.
            ImportError: ``polyak[onnx]`` is missing.
        """
        self.normalisation.say_not_in("an exported graph")
        return exporting.export(self, path, masks, channels_last, stochastic)

    def acting_graph(
        self, masks: bool | None = None, channels_last: bool | None = None, stochastic: bool = False
    ) -> exporting.Graph:
        """Returns the graph that :meth:`export` writes; arguments and errors are the same."""
        raise ValueError(f"{type(self).__name__} cannot be exported: it does not act by a graph of tensors.")

    @property
    def _allows_everything(self) -> bool:
        """Whether the environment is known to allow every action: it has been reset, in this process or before the
        model was saved, and gave no masks."""
        if self.runner is None or self.runner.obs is None:
            return self._saved_without_masks
        return not self.runner.env.masked

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: Any = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        *,
        trust: bool = False,
        resume: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Build a new model from a file. To put weights into an existing model, use ``set_parameters``.

        A file of Stable-Baselines3 (1.0 to 2.9) is read too, without running anything that it holds.

        Args:
            path: a path or a file opened for reading.
            env: the environment to continue in; its spaces must be those of the file. One that is not normalised is
                env: the environment to continue in; its spaces must be those of the file. An environment without
                normalisation is wrapped with the file's statistics, if it holds any; a ``VecNormalize`` that has not
                been updated takes them, and one with statistics of its own keeps these, with a warning. Without an
                environment, :meth:`predict` normalises with the file's statistics.
            device: where to put the model.
            custom_objects: hyper-parameters to use instead of the file's, whose entries are not read; also
                ``observation_space``, ``action_space`` and ``policy_class``.
            print_system_info: print the versions that wrote the file, and the present ones.
            force_reset: start new episodes at the next ``learn``; ``False`` continues from the file's last
                observations.
            trust: also load pickled values, such as a lambda given as ``learning_rate``. They can run any code: set
                this only for files that you trust.
            resume: also restore random states, the state of the environments and the replay buffer, if the file has
                one, so that training continues as if it had not been interrupted, regardless of ``force_reset``. If the
                file lacks the state of the environments, new episodes begin, with a warning; with a ``seed``, their
                seeds follow from it and the number of steps.
            kwargs: hyper-parameters to change.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a model file, belongs to another algorithm or does not fit ``env``, or a
                ``kwargs`` does not fit the learned parameters.
        """
        wanted = checkpoint.LoadRequest(env, device, custom_objects or {}, kwargs, force_reset, trust, resume)
        return checkpoint.load(cls, path, wanted, print_system_info)


def _check_env_is_given(cls: type, policy: Any, others: Iterable[str]) -> None:
    """Refuse a single positional argument where a policy and an environment are required, with a TypeError."""
    if lacking(cls.__init__, set(others) - {"policy"}) == ["policy", "env"]:  # type: ignore[misc]
        is_policy = isinstance(policy, type) or str(policy).endswith("Policy")
        given = repr(policy) if isinstance(policy, str) else "env"
        fix = f"{cls.__name__}({given}, env)" if is_policy else f"{cls.__name__}('MlpPolicy', {given})"
        wrong = "" if is_policy else f"policy={policy!r:.100} is no policy, which comes first. "
        raise TypeError(f"{cls.__name__}.__init__() missing the argument 'env'. {wrong}Write {fix}.")


def _check_no_policy(cls: type, env: Any) -> None:
    """Refuse the name of a policy as the environment, before other arguments are misread."""
    if isinstance(env, str) and re.fullmatch(r"\w*Policy", env):
        name, takes_one = cls.__name__, "policy" in declared(cls)
        fix = f"the policy comes first: {name}({env!r}, env)" if takes_one else f"{name} takes none: {name}(env)"
        raise ValueError(f"env={env!r} is a policy, not an environment; {fix}.")


def _plain(folder: str | os.PathLike[str] | None) -> str | None:
    """Returns a folder's path with ``~`` expanded."""
    return None if folder is None else os.path.expanduser(folder)


def _name_of(env: VecEnv) -> str:
    """Returns the name of the environments of a vector, without a request to worker processes, which may be busy."""
    envs = getattr(env, "envs", None)
    if not envs:
        return "environment"
    spec = getattr(envs[0], "spec", None)
    return type(envs[0].unwrapped).__name__ if spec is None else spec.id


def _layers(env: VecEnv) -> str:
    """Returns the wrappers as nested names, such as ``VecNormalize(DummyVecEnv)``."""
    name = type(env).__name__
    return f"{name}({_layers(env.venv)})" if isinstance(env, VecEnvWrapper) else name


setattr(Algorithm, "__signature__", Signature())  # noqa: B010  # no hyper-parameter
setattr(Algorithm, "load", _Loader(Algorithm.__dict__["load"].__func__))  # noqa: B010  # type checkers see the classmethod
