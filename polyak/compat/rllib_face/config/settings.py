"""The settings that all algorithms have, under RLlib's names: each once, with its sentence beneath.

A class holds the settings of one method of the builder. Those whose sentence begins with "On Ray" configure processes
that exist only with ``num_env_runners`` or ``num_learners`` above 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from gymnasium import spaces

from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.hyperparameters.declaration import Count, Fraction, Natural, NonNegative, Only, Parallel, Positive, Runners

Points = Annotated[Any, Only("points [[environment step, value], ...]", lambda value: isinstance(value, list | tuple))]
"""Straight lines between points, the first at step 0."""
Function = Any
"""A function or ``None``."""
_LOGDIR = "a dict with the folder of results alone: {'logdir': path}"


@dataclass(init=False, repr=False, eq=False)
class EnvironmentSettings:
    """The environment to learn in."""

    group: ClassVar[str] = "environment"
    env: Any = None
    """A name of Gymnasium's or of :func:`~polyak.compat.rllib_face.register_env`, or a class or function of one
    argument, the :class:`~polyak.compat.rllib_face.EnvContext`."""
    env_config: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment for a name of Gymnasium's, else entries of the context."""
    observation_space: spaces.Space | None = None
    """Must be the environment's."""
    action_space: spaces.Space | None = None
    """Must be the environment's."""
    clip_rewards: bool | Positive | None = None
    """Learn from the sign of rewards (``True``), or from rewards within plus and minus a number; ``None``: from the
    sign in Atari games, elsewhere from rewards as they are. Returns are reported of rewards as they are."""
    normalize_actions: bool = True
    """Networks choose continuous actions in [-1, 1], scaled to the range of the environment's."""
    clip_actions: bool = False
    """Clip continuous actions that are not normalised to the environment's bounds, which is required for them."""
    disable_env_checking: bool = False
    """Do not check a program's own environment before training."""
    is_atari: bool | None = None
    """Whether it is an Atari game; ``None``: by its name."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class EnvRunnerSettings:
    """The runners that collect experience."""

    group: ClassVar[str] = "env_runners"
    num_env_runners: Runners = 0
    """Processes that collect experience; 0: this one."""
    num_envs_per_env_runner: Parallel = 1
    """Environments in each runner."""
    gym_env_vectorize_mode: Literal["sync", "async"] = "sync"
    """Step the environments of a runner one after another, or each in its own process."""
    rollout_fragment_length: Count | Literal["auto"] = "auto"
    """Steps of each environment between two looks of the learner: see each algorithm."""
    batch_mode: Literal["truncate_episodes", "complete_episodes"] = "truncate_episodes"
    """Batches end wherever they are full; or are made of whole episodes. Then each runner plays as many episodes as it
    has environments, drops those that are under way when these have ended, and begins new ones: once for each gradient
    step of DQN and SAC, and until there are ``train_batch_size_per_learner`` steps for the others."""
    env_to_module_connector: Any = None
    """A :class:`~polyak.compat.rllib_face.MeanStdFilter`: observations are normalised by running mean and deviation,
    with the statistics of all runners. Or a function ``f(env, spaces, device)`` that returns pieces which change
    observations, one :class:`~polyak.compat.rllib_face.ConnectorV2` or a list of them and of a filter."""
    module_to_env_connector: Any = None
    """A function ``f(env, spaces)`` that returns pieces which change actions, in the module's units, before they are
    stored and executed: one :class:`~polyak.compat.rllib_face.ConnectorV2` or a list of them."""
    explore: bool = True
    """Actions are sampled while experience is collected; ``False``: they are deterministic, by ``forward_inference``.
    Evaluation does the same, unless ``evaluation_config`` overrides it."""
    num_cpus_per_env_runner: NonNegative = 1
    """On Ray: processors that each runner reserves."""
    num_gpus_per_env_runner: NonNegative = 0
    """On Ray: GPUs that each runner reserves."""
    custom_resources_per_env_runner: dict[str, Any] = field(default_factory=dict)
    """On Ray: other resources that each runner reserves."""
    create_env_on_local_worker: bool = False
    """On Ray: make environments in this process, too."""
    sample_timeout_s: Positive = 60.0
    """On Ray: seconds to wait for a batch."""
    merge_env_runner_states: bool | Literal["training_only"] = "training_only"
    """On Ray: merge the statistics of the runners' filters; ``False``: use those of the first runner."""
    broadcast_env_runner_states: bool = True
    """On Ray: send the merged statistics to all runners; ``False``: each runner keeps its own."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class LearnerSettings:
    """The learners."""

    group: ClassVar[str] = "learners"
    num_learners: Runners = 0
    """Processes that learn, as one; 0: this one."""
    num_gpus_per_learner: Fraction = 0
    """0: learn on the processor; more: on a GPU."""
    local_gpu_idx: Natural = 0
    """Number of the GPU on this machine."""
    num_cpus_per_learner: NonNegative | Literal["auto"] = "auto"
    """On Ray: processors that each learner reserves."""
    num_aggregator_actors_per_learner: Runners = 0
    """On Ray: processes that put batches together."""


@dataclass(init=False, repr=False, eq=False)
class TrainingSettings:
    """Hyper-parameters of learning; each algorithm adds its own."""

    group: ClassVar[str] = "training"
    gamma: Annotated[Fraction, To("gamma")] = 0.99
    """Discount factor, in [0, 1]."""
    lr: Annotated[NonNegative | Points | None, To("learning_rate")] = 1e-3
    """Learning rate: a number, or points [[environment step, value], ...]."""
    grad_clip: Annotated[NonNegative | None, To("max_grad_norm")] = None
    """Largest norm of the gradient; ``None``: any."""
    grad_clip_by: Literal["global_norm", "norm", "value"] = "global_norm"
    """Limit the norm of the gradients of all parameters together, that of each parameter's, or each number."""
    train_batch_size_per_learner: Count | None = None
    """Rows that each learner gets at once; ``None`` takes ``train_batch_size``."""
    train_batch_size: Count = 32
    """Rows that all learners get at once, where ``train_batch_size_per_learner`` is not given."""
    num_epochs: Count = 1
    """Passes over a batch."""
    minibatch_size: Count | None = None
    """Rows in one gradient step; ``None``: the whole batch."""
    shuffle_batch_per_epoch: bool = False
    """Put rows into another order before each pass."""
    learner_class: Any = None
    """A subclass of the algorithm's learner to use instead of it: of RLlib's, such as ``PPOTorchLearner``, or of
    polyak's (:class:`polyak.learning.learner.Learner`)."""
    learner_connector: Function = None
    """A function ``f(observation_space, action_space)`` that returns pieces which change training data, one
    :class:`~polyak.compat.rllib_face.ConnectorV2` or a list of them; for PPO and DQN."""
    learner_config_dict: dict[str, Any] = field(default_factory=dict)
    """Entries that the learner reads as ``self.config.learner_config_dict``."""


@dataclass(init=False, repr=False, eq=False)
class ModuleSettings:
    """The networks."""

    group: ClassVar[str] = "rl_module"
    model_config: Any = field(default_factory=dict)
    """Options of the default module: a :class:`~polyak.compat.rllib_face.DefaultModelConfig`, or a dict of some of its
    fields."""
    rl_module_spec: Any = None
    """A :class:`~polyak.compat.rllib_face.RLModuleSpec` with a program's own catalog or module, or a
    :class:`~polyak.compat.rllib_face.MultiRLModuleSpec` with that one as ``"default_policy"``, and modules that only
    the learner has (``learner_only=True``)."""
    algorithm_config_overrides_per_module: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name of a module -> settings that are others for its losses and optimizers, as ``AlgorithmConfig.overrides(...)``
    returns them; a further call adds to them."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class EvaluationSettings:
    """Evaluation during training."""

    group: ClassVar[str] = "evaluation"
    evaluation_interval: Count | None = None
    """Calls of ``train()`` between two evaluations; ``None``: no evaluation."""
    evaluation_duration: Count | Literal["auto"] = 10
    """Length of an evaluation, in ``evaluation_duration_unit``; ``"auto"``: as long as the training beside it, rounded
    up to each evaluator's last round."""
    evaluation_duration_unit: Literal["episodes", "timesteps"] = "episodes"
    """Episodes; or environment steps, which the last episode may exceed."""
    evaluation_config: Any = None
    """Settings that differ in evaluation: ``explore``, ``env``, ``env_config``, ``num_envs_per_env_runner``."""
    evaluation_num_env_runners: Runners = 0
    """Processes that evaluate; 0: this one."""
    evaluation_parallel_to_training: bool = False
    """Evaluate while training continues, which takes processes that evaluate."""
    evaluation_sample_timeout_s: Positive = 120.0
    """On Ray: seconds to wait for an evaluation."""
    custom_evaluation_function: Function = None
    """Called with the algorithm and its ``eval_env_runner_group``; returns (dict of results, environment steps, agent
    steps), or the dict alone, which takes the place of the results."""


@dataclass(init=False, repr=False, eq=False)
class CallbackSettings:
    """A program's own code that runs during training."""

    group: ClassVar[str] = "callbacks"
    callbacks_class: Any = None
    """A subclass of :class:`~polyak.compat.rllib_face.RLlibCallback`, or a list of them."""
    on_algorithm_init: Function = None
    """``f(*, algorithm, metrics_logger, **kwargs)`` once it is built."""
    on_train_result: Function = None
    """``f(*, algorithm, metrics_logger, result, **kwargs)`` after each ``train()``; it may change the result."""
    on_evaluate_start: Function = None
    """``f(*, algorithm, metrics_logger, **kwargs)`` before each evaluation."""
    on_evaluate_end: Function = None
    """``f(*, algorithm, metrics_logger, evaluation_metrics, **kwargs)`` after it."""
    on_env_runners_recreated: Function = None
    """``f(*, algorithm, env_runner_group, env_runner_indices, is_evaluation, metrics_logger, **kwargs)`` before the
    training step or evaluation that follows when runners were replaced."""
    on_checkpoint_loaded: Function = None
    """``f(*, algorithm, metrics_logger, **kwargs)`` after ``restore_from_path()``."""
    on_environment_created: Function = None
    """``f(*, env, env_context, env_runner, metrics_logger, **kwargs)`` for each environment."""
    on_episode_created: Function = None
    """``f(*, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs)`` for each episode, in training
    and in evaluation, with its first step."""
    on_episode_start: Function = None
    """Called with the same arguments after ``on_episode_created``."""
    on_episode_step: Function = None
    """Called with the same arguments for each of its steps."""
    on_episode_end: Function = None
    """Called with the same arguments at its end; for other processes only in training."""
    on_sample_end: Function = None
    """``f(*, env_runner, metrics_logger, samples, **kwargs)`` after each fragment, with its episodes."""


@dataclass(init=False, repr=False, eq=False)
class ReportingSettings:
    """The results of ``train()``, and when they are returned."""

    group: ClassVar[str] = "reporting"
    metrics_num_episodes_for_smoothing: Annotated[Count, To("stats_window_size")] = 100
    """Latest episodes that means, least and greatest values are taken of."""
    min_time_s_per_iteration: NonNegative | None = None
    """Least seconds of one ``train()``."""
    min_sample_timesteps_per_iteration: Natural = 0
    """Least environment steps of one ``train()``."""
    min_train_timesteps_per_iteration: Natural = 0
    """Least rows that one ``train()`` learns from, counted as often as they are."""
    log_gradients: bool = False
    """Not supported: norms of gradients are not reported; ``True`` gives a warning."""


@dataclass(init=False, repr=False, eq=False)
class DebuggingSettings:
    """Seeds and messages."""

    group: ClassVar[str] = "debugging"
    seed: Annotated[Natural | None, To("seed")] = None
    """Seed of all random numbers; equal seeds give equal results."""
    log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] = "WARN"
    """``"INFO"`` prints the settings of what is built, ``"DEBUG"`` more."""
    logger_config: Annotated[dict[str, Any], Only(_LOGDIR, lambda given: list(given) == ["logdir"])] | None = None
    """``{"logdir": folder}`` writes results there as files; ``None``: below ``~/ray_results``, under ``polyak run`` or
    once ``algo.logdir`` is read."""
    log_sys_usage: bool = True
    """Report the use of processors and memory, if psutil is there."""


@dataclass(init=False, repr=False, eq=False)
class FaultSettings:
    """Recovery from failures, on Ray."""

    group: ClassVar[str] = "fault_tolerance"
    restart_failed_env_runners: bool = True
    """On Ray: replace a runner that died."""
    ignore_env_runner_failures: bool = False
    """On Ray: continue without a runner that died."""
    max_num_env_runner_restarts: Natural = 1000
    """On Ray: largest number of replacements of runners."""
    delay_between_env_runner_restarts_s: NonNegative = 60.0
    """On Ray: seconds before a replacement."""
    restart_failed_sub_environments: bool = False
    """On Ray: make an environment again after it raised an error."""
    num_consecutive_env_runner_failures_tolerance: Natural = 100
    """On Ray: failures in a row before training ends."""
    env_runner_restore_timeout_s: NonNegative = 1800.0
    """On Ray: seconds within which a replacement must be ready."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class FrameworkSettings:
    """The computation of gradient steps."""

    group: ClassVar[str] = "framework"
    torch_compile_learner: bool | Literal["auto", "replay"] = "auto"
    """Run gradient steps as compiled programs: always, never, or ``"auto"``, once a run has become long."""
    torch_ddp_kwargs: dict[str, Any] = field(default_factory=dict)
    """On Ray: arguments of ``DistributedDataParallel``."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class StackSettings:
    """RLlib's API stack."""

    group: ClassVar[str] = "api_stack"


@dataclass(init=False, repr=False, eq=False)
@fixed
class OfflineSettings:
    """Recorded data."""

    group: ClassVar[str] = "offline_data"


@dataclass(init=False, repr=False, eq=False)
class ExperimentalSettings:
    """Settings that RLlib calls experimental."""

    group: ClassVar[str] = "experimental"
    _torch_lr_scheduler_classes: list[Any] | None = None
    """Functions that make schedulers of ``torch.optim.lr_scheduler`` from an optimizer. All of them change its rate
    after each update, in place of ``lr``."""


@dataclass(init=False, repr=False, eq=False)
class AllSettings(
    StackSettings,
    EnvironmentSettings,
    EnvRunnerSettings,
    LearnerSettings,
    TrainingSettings,
    ModuleSettings,
    EvaluationSettings,
    CallbackSettings,
    ReportingSettings,
    DebuggingSettings,
    FaultSettings,
    FrameworkSettings,
    OfflineSettings,
    ExperimentalSettings,
):
    """The settings of all algorithms, method by method."""


GROUPS = AllSettings.__bases__
TAKES_TOO: Mapping[str, tuple[str, ...]] = {"learners": ("learner_class", "learner_connector", "learner_config_dict")}
"""Method of the builder -> settings of another one that it takes, too."""
