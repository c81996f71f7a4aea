"""The face of every algorithm: hyper-parameters, ``learn``, ``predict``, ``save``, ``load``.

An algorithm is a dataclass: each hyper-parameter is written once, with its type, default and meaning. The constructor,
the command line, the documentation and the checkpoint all read ``dataclasses.fields``. It owns no mathematics (that is
the :class:`~polyak.core.learner.Learner`), no networks (the policy) and no environment loop (the runner).
"""

import inspect
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, fields
from functools import partial
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any, ClassVar, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from typing_extensions import Self

from polyak.core.advice import advise
from polyak.core.engine.arithmetic import operations
from polyak.core.engine.device import Work, choose, get_device
from polyak.core.engine.engine import Engine
from polyak.core.engine.speeds import rates
from polyak.core.engine.threads import threads_for
from polyak.core.files import checkpoint
from polyak.core.files.parameters import parameters, set_parameters
from polyak.core.finite import Guard, guarded
from polyak.core.learner import Learner, OptimizerRecipe
from polyak.core.runner import Observations, Runner
from polyak.core.schedules import Schedule, get_schedule_fn
from polyak.core.seeding import set_random_seed
from polyak.core.watching.callbacks import BaseCallback, MaybeCallback, as_callback
from polyak.core.watching.logger import Logger, configure_logger
from polyak.core.watching.time_split import TimeSplit
from polyak.envs import VecEnv, VecNormalize, as_vec_env, unwrap_vec_normalize
from polyak.envs.spaces import check_for_correct_spaces, maybe_transpose
from polyak.nn.fast.acting import Acting
from polyak.nn.fast.precision import PRECISIONS
from polyak.nn.policies.base import Policy

_NOMINAL_RUN = 1_000_000
"""Environment steps of a run, where a guess is needed."""

GymEnv = gym.Env | VecEnv | gym.vector.VectorEnv


def require(condition: bool, name: str, value: Any, fix: str) -> None:
    """Refuse a bad hyper-parameter.

    Raises:
        HyperparameterError: ``condition`` does not hold; the message names the argument, its value and the fix.
    """
    if not condition:
        raise HyperparameterError(f"{name}={value!r} cannot be used: {fix}")


class HyperparameterError(ValueError, AssertionError):
    """A bad hyper-parameter. Also an AssertionError, which is what Stable-Baselines3 raises in most such places."""


class SpaceError(ValueError, AssertionError):
    """An algorithm cannot act in a space. Also an AssertionError, which is what Stable-Baselines3 raises here."""


class _Signature:
    """``inspect.signature(SAC)`` and ``help(SAC)`` as a reader wants them: no ``InitVar``, no ``self``."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        return inspect.Signature(
            [p.replace(annotation=getattr(p.annotation, "type", p.annotation)) for p in parameters]
        )


class _Loader(classmethod):
    """``load``, which warns when it is called on a model: that model stays as it is."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is not None:
            advise(
                "load on an instance",
                "load() returns a new model and leaves the one that it is called on as it was. Write `model = "
                f"{type(instance).__name__}.load(path)`, or `model.set_parameters(path)` to change this model.",
            )
        return super().__get__(None, type(instance) if owner is None else owner)


class Part:
    """A network of the policy or a tensor of the learner, as an attribute of the algorithm (``model.actor``).

    Args:
        path: where it is, such as ``"policy.actor"``.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else attrgetter(self.path)(instance)


@dataclass(eq=False, repr=False)
class Algorithm:
    """What all algorithms share.

    Raises:
        TypeError: an unknown argument.
        ValueError: an argument out of range, an unknown policy, or a policy or action space that does not fit.
    """

    policy: Any
    """``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"`` or a policy class; afterwards the policy itself."""
    env: Any
    """An environment, a vector of them, or a registered name; ``None`` for a model that only predicts. Afterwards the
    vectorised environment with every wrapper."""
    learning_rate: float | Schedule = 3e-4
    """Step size of the optimizers: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    policy_kwargs: dict[str, Any] | None = None
    """Arguments of the policy (``net_arch``, ``activation_fn``, ``features_extractor_class`` ...) and of its optimizer
    (``optimizer_class``, ``optimizer_kwargs``)."""
    stats_window_size: int = 100
    """Episodes that the logged means of return, length and success cover."""
    tensorboard_log: str | None = None
    """Folder for TensorBoard files; ``None`` writes none."""
    verbose: int = 0
    """0 prints nothing, 1 the training table and what was wrapped, 2 debugging messages too."""
    seed: int | None = None
    """Seeds python, numpy, torch, the environments and the action space."""
    device: torch.device | str = "auto"
    """``"cpu"``, ``"cuda"`` or another torch device; ``"auto"`` takes a GPU where torch can use one and it should be
    faster than the processor, by their measured rates, for these networks and batches."""
    compile: bool | str = "auto"
    """Run each gradient step as one compiled program: the same numbers to rounding. ``"auto"`` does so in long runs,
    building once for each machine, network and batch size; ``True`` always, or fails; ``False`` never."""
    precision: str = "float32"
    """``"bfloat16"`` lets layers multiply in half precision while they learn; parameters, losses and optimizers stay in
    float32. For large networks on a GPU."""
    _init_setup_model: InitVar[bool] = True
    """Build the networks at once; ``False`` leaves it to a later ``_setup_model()``."""

    policies: ClassVar[Mapping[str, Callable[..., Policy]]] = {}
    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Space,)
    """Action spaces that the algorithm can handle."""
    policies_squash: ClassVar[bool] = False
    """Whether actions are scaled to the bounds of a Box, however wide it is."""
    raw_experience: ClassVar[bool] = False
    """Whether experience is stored as it was before normalisation."""
    predicts_raw: ClassVar[bool] = True
    """Whether a model that was loaded without an environment normalises what :meth:`predict` gets by itself."""
    __signature__: ClassVar[Any] = _Signature()
    engine = cast("Engine | None", None)
    """Runs gradient steps as compiled programs; its ``status`` says whether and why not."""
    _acting = cast("Acting | None", None)
    _guard = cast("Guard | None", None)
    _operations = math.inf

    def __post_init__(self, _init_setup_model: bool) -> None:
        policy, env = self.policy, self.env
        self.policy = self.env = None
        self._check_hyperparameters()
        self.policy_class = self._find_policy_class(policy)
        self._policy_name = policy
        self.policy_kwargs = dict(self.policy_kwargs or {})
        self._device_name, self.device = str(self.device), get_device(self.device)
        self.lr_schedule: Schedule = get_schedule_fn(self.learning_rate)
        self.num_timesteps = self._n_updates = self._episode_num = 0
        self._total_timesteps = self._num_timesteps_at_start = 0
        self._current_progress_remaining = 1.0
        self.start_time = 0.0
        self._logger: Logger | None = None
        self._custom_logger = False
        self.ep_info_buffer: deque[dict[str, Any]] = deque(maxlen=self.stats_window_size)
        self.ep_success_buffer: deque[bool] = deque(maxlen=self.stats_window_size)
        self.runner: Runner | None = None
        self._split = TimeSplit()
        self._statistics: VecNormalize | None = None
        self.n_envs = 1
        self.observation_space: spaces.Space
        self.action_space: spaces.Space
        if env is not None:
            self._use_env(as_vec_env(env, verbose=self.verbose))
            if _init_setup_model:
                self._setup_model()
                self._check_engine()

    # -- what a kind of algorithm writes -------------------------------------------------------------------------------

    def learner_factory(self) -> Callable[[], Learner]:
        """A picklable recipe for the learner, so that it can be built here or in another process."""
        raise NotImplementedError

    def _iterate(self, callback: BaseCallback, log_interval: int | None) -> bool:
        """Collect some experience and learn from it. False: a callback asked to stop."""
        raise NotImplementedError

    def _check_hyperparameters(self) -> None:
        """Refuse values out of range, before anything is built."""
        require(self.stats_window_size > 0, "stats_window_size", self.stats_window_size, "it must be at least 1.")
        if not callable(self.learning_rate):
            require(self.learning_rate >= 0, "learning_rate", self.learning_rate, "it must not be negative.")
        require(self.compile in (True, False, "auto"), "compile", self.compile, 'it must be True, False or "auto".')
        require(
            self.precision in PRECISIONS, "precision", self.precision, f"it must be one of {', '.join(PRECISIONS)}."
        )
        if self.seed is not None:
            require(0 <= self.seed < 2**32, "seed", self.seed, "it must lie in [0, 2**32).")

    # -- construction --------------------------------------------------------------------------------------------------

    def _find_policy_class(self, policy: str | type[Policy]) -> Callable[..., Policy]:
        if not isinstance(policy, str):
            return policy
        if policy not in self.policies:
            raise ValueError(
                f"Policy {policy!r} unknown: {type(self).__name__} has {sorted(self.policies)}. Use one of them, or "
                "pass a policy class."
            )
        return self.policies[policy]

    def _use_env(self, env: VecEnv) -> None:
        self._check_action_space(env.action_space)
        self.env, self.n_envs = env, env.num_envs
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.runner = Runner(env, raw=self.raw_experience, split=self._split)
        self._vec_normalize_env: VecNormalize | None = unwrap_vec_normalize(env)

    def _check_action_space(self, space: spaces.Space) -> None:
        name = type(self).__name__
        if not isinstance(space, self.action_spaces):
            supported = ", ".join(kind.__name__ for kind in self.action_spaces)
            raise SpaceError(
                f"{name} does not support the action space {space}. The algorithm only supports {supported}: use "
                "another algorithm or wrap the environment."
            )
        if isinstance(space, spaces.Box) and not np.all(np.isfinite(np.array([space.low, space.high]))):
            raise SpaceError(
                f"{name} needs finite bounds of a continuous action space, got {space}. Wrap the environment in "
                "gymnasium.wrappers.RescaleAction or give the Box finite low and high."
            )
        if isinstance(space, spaces.Box) and not self.policies_squash:
            half = float(np.max(space.high - space.low)) / 2
            if not 0.1 <= half <= 10:
                advise(
                    "scale of actions",
                    f"{name} explores with a standard deviation of about 1, but the actions of {space} span "
                    f"+-{half:g}. Bring them to [-1, 1]: gymnasium.wrappers.RescaleAction(env, -1, 1).",
                )
        if isinstance(space, spaces.MultiBinary) and len(space.shape) > 1:
            raise SpaceError(
                f"Multi-dimensional MultiBinary({space.n}) action space is not supported. Flatten it to one dimension."
            )

    def make_policy(self) -> Callable[[], Any]:
        """A picklable recipe for the policy."""
        kwargs = {k: v for k, v in self._policy_options().items() if k not in ("optimizer_class", "optimizer_kwargs")}
        return partial(self.policy_class, self.observation_space, self.action_space, **kwargs)

    def _policy_options(self) -> dict[str, Any]:
        return dict(self.policy_kwargs or {})

    def make_optimizer(self) -> OptimizerRecipe:
        """The optimizer that ``policy_kwargs`` asks for, or the algorithm's own."""
        options, default = self.policy_kwargs or {}, self._default_optimizer()
        cls, kwargs = options.get("optimizer_class", default.cls), options.get("optimizer_kwargs")
        if kwargs is None:
            kwargs = default.kwargs if cls is default.cls else {}
        return OptimizerRecipe(cls, kwargs)

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.Adam)

    def _setup_model(self) -> None:
        """Seed, then build the learner and what else the algorithm needs."""
        if self.seed is not None:
            self.set_random_seed(self.seed)
        self._setup_lr_schedule()
        learner = self.learner_factory()()
        if self._device_name == "auto" and torch.device(self.device).type == "cuda":
            self.device = self._faster_device(learner)
        self.learner = learner.to(self.device)
        self.learner.precision = self.precision
        self.engine = Engine(self.learner, self.compile)
        self.policy = self.learner.policy
        self._after_setup()

    def _check_engine(self, updated: bool = False) -> None:
        """Refuse what the engine alone carries out where a subclass makes its gradient steps without it.

        Args:
            updated: whether there have been gradient steps, so that the engine must have seen them.
        """
        if self.precision == "float32" and self.compile is not True:
            return
        name = "compile" if self.precision == "float32" else "precision"
        value, cls, engine = getattr(self, name), type(self).__name__, self.engine
        require(
            engine is not None and engine.learner is self.learner,
            name,
            value,
            f"{cls}._setup_model() gives its learner no engine. Let it call super()._setup_model(), which builds what "
            "learner_factory() describes.",
        )
        assert engine is not None
        require(
            bool(engine.methods) and (engine.learned or not updated),
            name,
            value,
            f"{cls} makes gradient steps of its own. Write them as methods of its learner that are named in `graphs` ("
            f"{', '.join(self.learner.graphs)}), and call self.learner.update(batch) in train().",
        )

    def _faster_device(self, learner: Learner) -> torch.device:
        """The GPU or the CPU, whichever should make this learner's steps in less time."""
        updates, rows = self._expected_updates(_NOMINAL_RUN)
        if updates == 0:  # nobody knows
            return torch.device(self.device)
        acts, step = _NOMINAL_RUN / self.n_envs / updates, operations(learner, rows)
        acting = step / (3 * rows) * self.n_envs
        choice = choose(Work(step, sum(1 for _ in learner.parameters()), acts, acting), rates())
        if self.verbose >= 1:
            print(choice)
        return torch.device(choice.device)

    def _setup_lr_schedule(self) -> None:
        self.lr_schedule = get_schedule_fn(self.learning_rate)

    def _after_setup(self) -> None:
        """For what hangs on the learner."""

    def _extra_state(self) -> dict[str, Any]:
        """What else a checkpoint must hold for training to go on unchanged."""
        return {}

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`_extra_state` returned."""

    # -- environments --------------------------------------------------------------------------------------------------

    def get_env(self) -> VecEnv | None:
        """The vectorised environment, with every wrapper."""
        return self.env

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """The normalising wrapper among the environment's wrappers, if there is one."""
        return unwrap_vec_normalize(self.env) if self.env is not None else None

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Go on with another environment of the same spaces.

        Args:
            env: the new environment; ``n_envs`` must not change once the model has learned with the old one.
            force_reset: start new episodes at the next ``learn``; ``False`` goes on from the last observations.

        Raises:
            ValueError: the spaces or the number of environments differ.
        """
        vec_env = checkpoint.with_statistics(as_vec_env(env, verbose=self.verbose), self._statistics)
        if vec_env.num_envs != self.n_envs:
            raise SpaceError(
                f"env has {vec_env.num_envs} environments, but the model was built for n_envs={self.n_envs}, which "
                f"set_env() keeps. To change it, use {type(self).__name__}.load(path, env=env)."
            )
        check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
        state = self.runner.state() if self.runner is not None and not force_reset else {}
        self._use_env(vec_env)
        assert self.runner is not None
        self.runner.load_state(state)

    @property
    def _last_obs(self) -> Observations | None:
        return self.runner.obs if self.runner is not None else None

    @_last_obs.setter
    def _last_obs(self, value: Observations | None) -> None:
        if self.runner is not None:
            self.runner.obs = value

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

    # -- learning ------------------------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train.

        Args:
            total_timesteps: environment steps to make, over all environments: a lower bound, since a rollout that has
                begun is finished.
            callback: called at every step; a function, a callback object, or a list of them.
            log_interval: iterations (on-policy) or episodes (off-policy) between two log tables; ``None`` for none.
            tb_log_name: name of the run's folder under ``tensorboard_log``; ``None`` takes the algorithm's name.
            reset_num_timesteps: start counting at zero; ``False`` goes on with the counters and logs.
            progress_bar: show one; needs ``polyak[extra]``.

        Returns:
            the model itself.

        Raises:
            ValueError: the model has no environment.
        """
        name = type(self).__name__ if tb_log_name is None else tb_log_name
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, name, progress_bar
        )
        assert self.runner is not None
        callback.on_training_start(self._callback_locals(callback=callback, log_interval=log_interval), globals())
        updates = self._n_updates
        with threads_for(self._operations), guarded(self):
            try:
                while self.num_timesteps < total_timesteps and self._iterate(callback, log_interval):
                    self._check_engine(updated=self._n_updates > updates)
            finally:
                self.runner.close_thread()
                callback.on_training_end()
                self._split.stop()
        if self.verbose >= 1:
            print("time: " + ", ".join(f"{name} {share} %" for name, share in self._split.percent().items()))
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        """Reset counters, buffers of statistics, logger and environment as a call of ``learn`` needs them."""
        if self.env is None or self.runner is None:
            raise ValueError(
                "env=None: this model has no environment to learn in. Pass one: "
                f"`{type(self).__name__}.load(path, env=...)` or `model.set_env(env)`."
            )
        self._check_engine()
        self.start_time = time.time_ns()
        self._split.start()
        if reset_num_timesteps:
            self.num_timesteps = self._episode_num = 0
            self.ep_info_buffer.clear()
            self.ep_success_buffer.clear()
        else:
            total_timesteps += self.num_timesteps
        self._total_timesteps, self._num_timesteps_at_start = total_timesteps, self.num_timesteps
        if reset_num_timesteps or self.runner.obs is None:
            self._start_episodes()
        updates, rows = self._expected_updates(total_timesteps - self.num_timesteps)
        if self.engine is not None:  # an algorithm of the user's own may have set itself up otherwise
            self.engine.expect(updates, rows)
            self._operations = self.engine.operations(rows) if updates else math.inf
            if self.verbose >= 1 and self.engine.compiles:
                print("Gradient steps are compiled; the first run on a machine builds them, which takes some seconds.")
        if not self._custom_logger:
            self._logger = configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        return total_timesteps, as_callback(callback, self, progress_bar)

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        """Gradient steps that so many environment steps will bring, and the rows of each; (0, 1) if nobody knows."""
        return 0, 1

    @property
    def _gathers_late(self) -> bool:
        """Whether gradient steps run as programs, which gather the rows of a minibatch as they read them."""
        return self.engine is not None and self.engine.compiles

    def _start_episodes(self) -> None:
        """Reset the environments, in the middle of an episode if need be."""
        assert self.runner is not None
        self.runner.reset()

    def _callback_locals(self, **names: Any) -> dict[str, Any]:
        """What a callback finds in ``self.locals``."""
        return {"self": self, "env": self.env, "total_timesteps": self._total_timesteps, **names}

    def _prepare_to_act(self) -> None:
        """To be called before experience is collected: see what is the quickest way to the policy's actions now."""
        if self._acting is None or self._acting.policy is not self.policy:
            self._acting = Acting(self.policy)
        self._acting.refresh()

    def _act_on(self, obs: Observations) -> np.ndarray:
        """The policy's own stochastic actions [N, ...] for observations [N, ...], in the network's units."""
        if self._acting is None or self._acting.policy is not self.policy:  # a callback may have put in another
            self._prepare_to_act()
        assert self._acting is not None
        return self._acting(obs, finite=True)  # the runner has looked

    def _update_info_buffer(self, infos: Iterable[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        """Remember the statistics of the episodes that ended in this step."""
        for info in infos:
            if (episode := info.get("episode")) is not None:
                self.ep_info_buffer.append(episode)
        if dones is None or not np.count_nonzero(dones):
            return
        for info, done in zip(infos, dones, strict=False):
            if done and (success := info.get("is_success")) is not None:
                self.ep_success_buffer.append(success)

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        self._current_progress_remaining = 1.0 - float(num_timesteps) / float(total_timesteps)

    def _turn_dials(self) -> None:
        """Bring schedules and changed attributes (``model.ent_coef = 0.01``) to the learner."""
        self.learner.adopt_optimizers()
        lr = self.lr_schedule(self._current_progress_remaining)
        self.logger.record("train/learning_rate", lr)
        values = {"learning_rate": lr}
        for name in self.learner.dials:
            if name != "learning_rate":
                value = getattr(self, name)
                values[name] = value(self._current_progress_remaining) if callable(value) else value
        self.learner.set(**values)

    # -- logging -------------------------------------------------------------------------------------------------------

    @property
    def logger(self) -> Logger:
        """Where training writes; there is one from the first ``learn`` on, or after :meth:`set_logger`."""
        if self._logger is None:
            raise AttributeError("the model has no logger before learn(); call set_logger() to give it one.")
        return self._logger

    def set_logger(self, logger: Logger) -> None:
        """Write to ``logger`` instead of what ``verbose`` and ``tensorboard_log`` ask for."""
        self._logger, self._custom_logger = logger, True

    def dump_logs(self) -> None:
        """Write the statistics of finished episodes, the speed and whatever was recorded since the last dump."""
        self._write_logs()

    def _record_means(self, metrics: Mapping[str, list[torch.Tensor]]) -> None:
        """Log the mean of each metric of some gradient steps; a loss that is not finite ends training."""
        means = {
            name: values[0] if len(values) == 1 else torch.stack(values).mean() for name, values in metrics.items()
        }
        for name, mean in means.items():
            self.logger.record(f"train/{name}", mean)
        if self._guard is not None:
            self._guard.after_update(means)

    def _write_logs(self, **counters: float) -> None:
        """:meth:`dump_logs`, with further values of the ``time/`` group, such as ``episodes``."""
        elapsed = max((time.time_ns() - self.start_time) / 1e9, float(np.finfo(float).eps))
        for name, value in counters.items():
            self.logger.record(f"time/{name}", value, exclude="tensorboard")
        if self.ep_info_buffer:
            self.logger.record("rollout/ep_rew_mean", float(np.mean([e["r"] for e in self.ep_info_buffer])))
            self.logger.record("rollout/ep_len_mean", float(np.mean([e["l"] for e in self.ep_info_buffer])))
        if self.ep_success_buffer:
            self.logger.record("rollout/success_rate", float(np.mean(self.ep_success_buffer)))
        self.logger.record("time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed))
        self.logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        for name, share in self._split.percent_since_logged().items():
            self.logger.record(f"time/{name}", share, exclude="stdout")
        self.logger.dump(step=self.num_timesteps)

    @property
    def time_split(self) -> dict[str, float]:
        """Seconds that the last call of :meth:`learn` spent, or the present one has spent, on each of ``env``,
        ``inference``, ``copy``, ``sample``, ``update`` and ``other``; their sum is the wall time. See
        :mod:`polyak.core.watching.time_split`.
        """
        return self._split.seconds()

    @property
    def normalises_observations(self) -> bool:
        """Whether the model learned, or learns, from observations normalised by ``VecNormalize``."""
        normalizer = self.get_vec_normalize_env() or self._statistics
        return normalizer is not None and normalizer.norm_obs

    # -- acting --------------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """The policy's action for one observation or a batch of them.

        Args:
            observation: one, or N stacked, as the model's environment returns them. A model that learned under
                ``VecNormalize`` and was loaded without an environment takes them as they are before normalisation: the
                statistics are in its file.
            state: a recurrent policy's memory; others hand it back.
            episode_start: [N] where a recurrent policy forgets.
            deterministic: the most likely action instead of a sample.

        Returns:
            the action or actions, in the environment's units, and the next state.
        """
        if self.env is None and self._statistics is not None and self.predicts_raw:
            observation = self._normalized(observation, self._statistics)
        return self.policy.predict(observation, state, episode_start, deterministic)

    def _normalized(self, observation: Any, statistics: VecNormalize) -> Any:
        """A raw observation as the policy learned from it; one of another kind is left for the policy to refuse."""
        if isinstance(statistics.obs_rms, dict):
            fits = isinstance(observation, Mapping) and statistics.obs_rms.keys() <= observation.keys()
            return statistics.normalize_obs(dict(observation)) if fits else observation
        if statistics.obs_rms is None or isinstance(observation, tuple | Mapping):
            return observation
        shape = statistics.obs_rms.mean.shape
        observation = np.asarray(observation)
        if observation.shape[observation.ndim - len(shape) :] != shape:  # pictures may come channels-last
            observation = maybe_transpose(observation, self.observation_space)
        return statistics.normalize_obs(observation)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed python, numpy, torch, the environments and the action space; ``None`` does nothing."""
        if seed is None:
            return
        set_random_seed(seed, using_cuda=torch.device(self.device).type == "cuda")
        self.action_space.seed(seed)
        if self.env is not None:
            self.env.seed(seed)

    # -- parameters and files ------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        """Every field of the dataclass with its present value."""
        names = [f.name for f in fields(self) if f.name not in ("policy", "env")]
        values = {name: getattr(self, name) for name in names}
        return values | {"device": self._device_name}

    def get_parameters(self) -> dict[str, Any]:
        """State dicts of the policy and of each optimizer, under Stable-Baselines3's names."""
        return parameters(self.learner)

    def set_parameters(
        self,
        load_path_or_dict: Any,
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Load weights into this model, in place.

        Args:
            load_path_or_dict: a saved model, also one of Stable-Baselines3, or what :meth:`get_parameters` returns.
            exact_match: demand every object and every tensor; ``False`` loads what is there.
            device: ignored for a dict; where a file's tensors are put first.

        Raises:
            ValueError: an object that the model does not have, or with ``exact_match`` one that is missing.
            RuntimeError: with ``exact_match``, tensors are missing or have another shape.
        """
        get_device(device)
        if not isinstance(load_path_or_dict, Mapping):
            load_path_or_dict = checkpoint.read(load_path_or_dict, weights_only=True).parameters()
        set_parameters(self.learner, load_path_or_dict, exact_match)

    def save(self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None) -> None:
        """Write the model to one file: how to build it, and what it learned. Nothing in it runs when it is loaded.

        Args:
            path: a path (``.zip`` is added to a name without a suffix) or a file opened for writing.
            exclude: hyper-parameters or counters to leave out.
            include: further things to put in: ``"replay_buffer"``; a name in both lists is put in.

        Raises:
            ValueError: ``include`` names something that cannot be saved this way.
        """
        checkpoint.save(self, path, exclude=set(exclude or ()), include=set(include or ()))

    def save_sb3(self, path: Any) -> None:
        """Write the model to a file that Stable-Baselines3 2.9 loads, where it predicts and learns on as it does here.

        Statistics of ``VecNormalize`` and replay buffers are not in it: see ``VecNormalize.save_sb3``.

        Args:
            path: a path (``.zip`` is added to a name without a suffix) or a file opened for writing.

        Raises:
            ValueError: the model has something that there is no equal of, such as a policy of polyak's own.
        """
        resolve_name(checkpoint.EXPORTS["sb3"])(self, path)

    @classmethod
    def load(
        cls,
        path: Any,
        env: GymEnv | str | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        *,
        trust: bool = False,
        resume: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Build a new model from a file. To put weights into an existing model, use :meth:`set_parameters`.

        A file of Stable-Baselines3 (1.0 to 2.9) is read too, without running anything that it holds.

        Args:
            path: a path or a file opened for reading.
            env: the environment to go on with; its spaces must be those of the file. One that is not normalised is
                wrapped with the statistics that the file holds, if it holds any. Without an environment,
                :meth:`predict` normalises with them by itself.
            device: where to put the model.
            custom_objects: hyper-parameters to use instead of the file's, which are then not read; also
                ``observation_space``, ``action_space`` and ``policy_class``.
            print_system_info: print the versions that wrote the file, and the present ones.
            force_reset: start new episodes at the next ``learn``; ``False`` goes on from the file's last observations.
            trust: also load pickled values, such as a lambda given as ``learning_rate``. They can run any code: set
                this only for files that you trust.
            resume: also take the file's random states and, if it has one, its replay buffer, so that training goes on
                as if it had not been interrupted.
            kwargs: hyper-parameters to change.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: not a model file, or one of another algorithm, or it does not fit ``env``, or a ``kwargs`` does
                not fit what was learned.
        """
        return checkpoint.load(
            cls,
            path,
            env=env,
            device=device,
            custom_objects=custom_objects or {},
            overrides=kwargs,
            print_system_info=print_system_info,
            force_reset=force_reset,
            trust=trust,
            resume=resume,
        )


setattr(Algorithm, "load", _Loader(Algorithm.__dict__["load"].__func__))  # noqa: B010  # type checkers see the classmethod
