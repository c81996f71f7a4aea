"""The configs of DQN and Rainbow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from polyak.algorithms.c51 import C51
from polyak.algorithms.dqn import DQN
from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.config.base import HORIZON, AlgorithmConfig, Plain, with_learner
from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.compat.rllib_face.config.modules import Networks
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.connectors.given import filter_of
from polyak.compat.rllib_face.learners.values import DQNTorchLearner, ReportsValues
from polyak.compat.rllib_face.models.catalog import DQNCatalog
from polyak.compat.rllib_face.models.default_modules import DefaultDQNTorchRLModule
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec
from polyak.compat.rllib_face.models.values import (
    LOSSES,
    TARGETS,
    ExploresItself,
    LossesOfModule,
    ModuleValuePolicy,
    SquaredErrors,
    TargetsOfModule,
    chooses_itself,
    explores_itself,
    refuse_of_dqn,
)
from polyak.compat.rllib_face.rollouts import WholeReplay, rounds_loop, with_part
from polyak.hyperparameters.declaration import (
    Count,
    Fraction,
    Natural,
    Positive,
    Runners,
    declared,
    fitted,
    require,
)
from polyak.nn.networks.layers import check_widths
from polyak.schedules import LinearSchedule
from polyak.suggestions import did_you_mean
from polyak.warning import advise, warn_user

BUFFERS = {"EpisodeReplayBuffer": False, "PrioritizedEpisodeReplayBuffer": True}
"""Types of replay buffers -> whether they are prioritised."""
OLD_BUFFERS = {
    f"{agents}{kind}ReplayBuffer": f"{kind.removesuffix('Episode')}EpisodeReplayBuffer"
    for agents in ("", "MultiAgent")
    for kind in ("", "Prioritized", "Episode", "PrioritizedEpisode")
    if agents or not kind.endswith("Episode")
}
OLD_ALPHAS = {"prioritized_replay_alpha": "alpha", "prioritized_replay_beta": "beta"}
"""Old names of entries that still mean the same."""
IDLE = [("_enable_replay_buffer_api", False), ("replay_sequence_length", 1), ("prioritized_replay_eps", 1e-6)]
"""Old entries at values that have no effect."""
OLD_OPTIONS = {
    "_enable_replay_buffer_api": "nothing: it is always so",
    "prioritized_replay_eps": "nothing: 'alpha' and 'beta' are all",
    "replay_sequence_length": "rl_module(model_config={'use_lstm': True, 'max_seq_len': ...})",
    "learning_starts": "training(num_steps_sampled_before_learning_starts=...)",
}


def prioritized(capacity: int, alpha: float = 0.6) -> dict[str, Any]:
    """RLlib's default of ``replay_buffer_config``."""
    return {"type": "PrioritizedEpisodeReplayBuffer", "capacity": capacity, "alpha": alpha, "beta": 0.4}


@dataclass
class ReplayOptions:
    """``replay_buffer_config`` without its ``type``."""

    prioritized: InitVar[bool]
    capacity: Count = 10_000
    num_replay_buffer_shards: Runners = 0
    """Processes that hold the buffer; 0: the learner's."""
    optimize_memory_usage: Literal[True, False, None] = None
    """Keep every observation, and every frame of stacked images, once; ``None``: for images, and for buffers that would
    not fit otherwise."""
    storage_device: Literal["cpu", "disk"] | None = None
    """``"cpu"``: in main memory; ``"disk"``: in a temporary file; ``None``: where it fits."""
    alpha: Fraction = 1.0
    beta: Fraction = 1.0

    def __post_init__(self, prioritized: bool) -> None:
        beta = float(self.beta)
        self.priorities = prioritized and {"alpha": float(self.alpha), "beta": beta, "final_beta": beta}
        fix = f"replay_buffer_config['num_replay_buffer_shards']={self.num_replay_buffer_shards} holds it elsewhere. "
        here = self.storage_device is None or not self.num_replay_buffer_shards
        require(here, "replay_buffer_config['storage_device']", self.storage_device, f"{fix}Leave one of them out.")


def replay_options(config: Mapping[str, Any]) -> ReplayOptions:
    """Returns the options in ``replay_buffer_config``.

    Raises:
        HyperparameterError: an unknown type or entry; the message has its replacement or the most similar name.
    """
    name = "replay_buffer_config"
    kind = config.get("type", "PrioritizedEpisodeReplayBuffer")
    kind = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    if kind in OLD_BUFFERS:
        warn_user(f"{name}['type']={kind!r} is an old name. Use {OLD_BUFFERS[kind]!r}.")
        kind = OLD_BUFFERS[kind]
    fix = f"there are {', '.join(BUFFERS)}."
    require(kind in BUFFERS, f"{name}['type']", kind, fix + did_you_mean(kind, BUFFERS))
    hints, given = declared(ReplayOptions), _renamed(config)
    known = ["type", *(key for key in hints if BUFFERS[kind] or key not in OLD_ALPHAS.values())]
    for key, value in given.items():
        hint = f" Use {OLD_OPTIONS[key]}." if key in OLD_OPTIONS else did_you_mean(str(key), known)
        require(key in known, f"{name}[{key!r}]", value, f"a {kind} has no such entry.{hint}")
    values = {key: fitted(f"{name}[{key!r}]", value, hints[key]) for key, value in given.items() if key != "type"}
    return ReplayOptions(BUFFERS[kind], **values)


def _renamed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns entries of ``replay_buffer_config`` under current names, without those that have no effect."""
    found = {}
    for key, value in config.items():
        if key in OLD_ALPHAS:
            warn_user(f"replay_buffer_config[{key!r}] is an old name. Use {OLD_ALPHAS[key]!r}.")
            found[OLD_ALPHAS[key]] = value
        elif (key, value) not in IDLE:
            found[key] = value
    return found


@dataclass(init=False, repr=False, eq=False)
@fixed
class ReplayConfig(AlgorithmConfig):
    """The base of DQN's and SAC's configs: settings of replay."""

    train_batch_size_per_learner: Count | None = 32
    """Transitions in one gradient step."""
    minibatch_size: Count | None = None
    """The whole batch, or as many rows."""
    target_network_update_freq: Natural = 500
    """Environment steps between two updates of the target network."""
    tau: Annotated[Fraction, To("tau")] = 1.0
    """Rate at which it follows; 1 copies."""
    num_steps_sampled_before_learning_starts: Natural = 1000
    """Environment steps before the first gradient step, with actions explored as later."""
    n_step: Count | tuple[int, int] = 1
    """Rewards summed before bootstrapping; ``(least, most)`` draws a number for each transition."""
    training_intensity: Positive | None = None
    """Transitions learned from for each one collected; ``None``: one gradient step after each fragment."""
    replay_buffer_config: dict[str, Any] = field(default_factory=lambda: prioritized(50_000))
    """``type`` ``"EpisodeReplayBuffer"`` or ``"PrioritizedEpisodeReplayBuffer"``, ``capacity`` in transitions, and of
    the latter ``alpha`` (how much errors decide) and ``beta`` (how much of the bias is undone).
    ``optimize_memory_usage`` keeps every observation and every frame of stacked images once, by default of images with
    the channels last, and of what would not fit otherwise; ``storage_device`` says where, ``"cpu"`` or ``"disk"``, by
    default in a temporary file on disk what does not fit into memory. On Ray, ``num_replay_buffer_shards`` processes
    hold it (Ape-X, arXiv:1803.00933) instead of the learner's."""
    max_requests_in_flight_per_learner: Count = 3
    """On Ray: batches that are asked of replay shards in advance, unless there is a seed."""
    store_buffer_in_checkpoints: bool = False
    """Write replayed experience to checkpoints, too."""

    def get_rollout_fragment_length(self) -> int:
        """Returns the steps of each environment before a gradient step: by default as many as rewards are summed."""
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        return self.n_step if isinstance(self.n_step, int) else max(self.n_step)

    def _algorithm(self, algorithm: type[Any]) -> type[Any]:
        found = super()._algorithm(algorithm)
        if self.batch_mode == "truncate_episodes" or not self.collects:
            return found
        shards = self.replay_buffer_config.get("num_replay_buffer_shards", 0)
        fix = "shards hold steps of several environments, and not episodes one after another. Leave it out."
        require(not shards, "replay_buffer_config['num_replay_buffer_shards']", shards, fix)
        rounds = self._intensity()[1] // self.get_rollout_fragment_length()
        whole = with_part(found, "replay", WholeReplay, least_rounds=rounds)
        whole.loop = rounds_loop
        return whole

    def _intensity(self) -> tuple[int, int]:
        """Gradient steps at a time, and steps of each environment before them."""
        fragment = self.get_rollout_fragment_length()
        if self.training_intensity is None:
            return 1, fragment
        ratio = self.training_intensity * fragment * self.num_envs_per_env_runner / self.total_train_batch_size
        return (round(ratio), fragment) if ratio >= 1 else (1, fragment * round(1 / ratio))

    def _replay(self, images: bool) -> dict[str, Any]:
        """Keyword arguments of all that replay; ``images``: observations are images with the channels last."""
        options = replay_options(self.replay_buffer_config)
        once, place = options.optimize_memory_usage, options.storage_device
        batch = self.total_train_batch_size
        fix = f"a gradient step is made of the whole batch (train_batch_size_per_learner={batch}). Leave it out."
        require(self.minibatch_size in (None, batch), "minibatch_size", self.minibatch_size, fix)
        updates, fragment = self._intensity()
        return {
            **self._translated(),
            **self._sharded(options.num_replay_buffer_shards),
            **({} if place is None else {"replay_buffer_kwargs": {"storage_device": place}}),
            "buffer_size": options.capacity,
            "prioritized": options.priorities,
            "optimize_memory_usage": images if once is None else once,
            "batch_size": batch,
            "train_freq": fragment,
            "gradient_steps": updates,
            "learning_starts": max(self.num_steps_sampled_before_learning_starts - 1, 0),  # more than which are needed
            "random_warm_up": False,
            "n_steps": tuple(self.n_step) if isinstance(self.n_step, list) else self.n_step,
        }

    def _sharded(self, shards: int) -> dict[str, Any]:
        """Keyword arguments where other processes hold the buffer."""
        if shards == 0:
            return {}
        envs = self.num_envs_per_env_runner * max(self.num_env_runners, 1)
        fix = f"each shard holds the steps of at least one environment, and there are {envs}: use as many at most."
        require(shards <= envs, "replay_buffer_config['num_replay_buffer_shards']", shards, fix)
        how = filter_of(self.env_to_module_connector)
        fix = "shards sum rewards as they are: use MeanStdFilter(rewards=False), or no shards."
        require(how is None or not how.rewards, "env_to_module_connector", how, fix)
        ahead = {} if self.seed is not None else {"drawn_ahead": self.max_requests_in_flight_per_learner}
        return {"n_replay_shards": shards, "replay_buffer_kwargs": ahead}


@dataclass(init=False, repr=False, eq=False)
@fixed
class DQNConfig(ReplayConfig):
    """DQN's settings (Nature 518, 2015), with those of its extensions. With ``num_atoms`` above 1 it is C51."""

    epsilon: Fraction | Points = field(default_factory=lambda: [[0, 1.0], [10_000, 0.05]])
    """Probability of a random action: a number, or points [[environment step, value], ...]. Where ``noisy``, noise
    takes its place."""
    adam_epsilon: Positive = 1e-8
    """Added to the root of the second moment in Adam."""
    num_atoms: Count = 1
    """Atoms of distributions of returns (arXiv:1707.06887); 1: their means alone."""
    v_min: float = -10.0
    """The first atom."""
    v_max: float = 10.0
    """The last atom."""
    noisy: bool = False
    """Noise of learned size in the weights of the heads replaces random actions (arXiv:1706.10295)."""
    sigma0: Positive = 0.5
    """First size of that noise."""
    dueling: Annotated[bool, To("dueling")] = True
    """Separate heads for state values and advantages (arXiv:1511.06581)."""
    hiddens: list[int] = field(default_factory=lambda: [256])
    """Widths of the hidden layers of each head, unless ``model_config`` has ``head_fcnet_hiddens``."""
    double_q: Annotated[bool, To("double")] = True
    """Double Q-learning (arXiv:1509.06461)."""
    td_error_loss_fn: Literal["huber", "mse"] = "huber"
    """Loss of the temporal-difference error: Huber's, whose gradient is at most 1, or the squared error. Not used with
    ``num_atoms``."""
    burn_in_len: Natural = 0
    """Steps that only bring the recurrent state up to date, with ``model_config={"use_lstm": True}``."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "lr": 5e-4,
        "grad_clip": 40.0,
        "min_sample_timesteps_per_iteration": 1000,
        "evaluation_config": {"explore": False},
    }
    pieces_see: ClassVar = "batches"
    per_module: ClassVar[tuple[str, ...]] = (
        *ReplayConfig.per_module,
        *("adam_epsilon", "double_q", "n_step", "target_network_update_freq", "tau", "td_error_loss_fn"),
    )
    name: ClassVar[str] = "DQN"

    def get_default_rl_module_spec(self) -> Any:
        return RLModuleSpec(module_class=DefaultDQNTorchRLModule, catalog_class=DQNCatalog)

    def get_default_learner_class(self) -> Any:
        return DQNTorchLearner

    def plain(self, image_channels_last: bool = False) -> Plain:
        distributional: dict[str, Any] = {}
        if self.num_atoms > 1:
            distributional = {"n_atoms": self.num_atoms, "v_min": self.v_min, "v_max": self.v_max}
        noisy = {"noisy": True, "sigma0": self.sigma0} if self.noisy else {}
        policy_kwargs = self._policy_kwargs(image_channels_last)
        kwargs = {
            **self._replay(image_channels_last),
            "target_update_interval": max(self.target_network_update_freq, 1),
            **distributional,
            **noisy,
            **self._exploration(),
            "policy_kwargs": policy_kwargs,
        }
        algorithm = self._algorithm(C51 if self.num_atoms > 1 else DQN)
        fix = "distributions of returns are learned by polyak's own loss: set num_atoms=1, or use C51's learner."
        plainly = self._own_losses() or self._has_pieces()
        require(not plainly or self.num_atoms == 1, "num_atoms", self.num_atoms, fix)
        if self.td_error_loss_fn == "mse":
            fix = "distributions of returns are learned by their cross-entropy: set num_atoms=1, or leave it out."
            require(self.num_atoms == 1, "td_error_loss_fn", self.td_error_loss_fn, fix)
            algorithm = with_learner(algorithm, SquaredErrors)
        module_class = policy_kwargs["module_class"]
        if explores_itself(module_class):
            algorithm = type(algorithm.__name__, (ExploresItself, algorithm), {"__module__": __name__})
        if own := chooses_itself(module_class, LOSSES):
            fix = "distributions of returns are learned from compute_q_values(): write that, or set num_atoms=1."
            require(self.num_atoms == 1, "num_atoms", self.num_atoms, f"the module has {own[0]}() of its own: {fix}")
            algorithm = with_learner(algorithm, LossesOfModule)
        if chooses_itself(module_class, TARGETS):
            algorithm = with_learner(algorithm, TargetsOfModule)
        return Plain(algorithm, ModuleValuePolicy, kwargs)

    reports: ClassVar = ReportsValues

    def exploration_schedule(self) -> Any:
        """Returns the probability of a random action, by the remaining progress of
        :data:`~polyak.compat.rllib_face.config.base.HORIZON` steps; ``None`` where noise takes its place."""
        if self.noisy:
            return None
        found = self.schedule("epsilon")
        return found if callable(found) else LinearSchedule(found, found, 1.0)

    def _given_epsilon(self) -> Any:
        """Returns the ``epsilon`` for a module that explores by itself."""
        return 0.0 if self.noisy else self.epsilon

    def _exploration(self) -> dict[str, Any]:
        """Keyword arguments of the first straight line; :meth:`exploration_schedule` has them all."""
        if self.noisy:
            if "epsilon" in self._given:
                advise("epsilon of noisy networks", "noisy=True explores by noise in the weights: epsilon is not used.")
            return {}
        points = self.schedule("epsilon")
        if not callable(points):
            points = LinearSchedule(points, points, 1.0)
            return {"exploration_initial_eps": points.start, "exploration_final_eps": points.end}
        last, final = points.points[-1]
        require(max(y for _, y in points.points) <= 1, "epsilon", self.epsilon, "it is a probability, in [0, 1].")
        fix = f"its last step must be at most {HORIZON:,}."
        require(last <= 1, "epsilon", self.epsilon, fix)
        return {
            "exploration_initial_eps": points.points[0][1],
            "exploration_final_eps": final,
            "exploration_fraction": last,
        }

    def _policy_kwargs(self, turned: bool) -> dict[str, Any]:
        builds = ("build_encoder", "build_af_head", "build_vf_head")
        networks = Networks(self, DefaultDQNTorchRLModule, builds, not_called.OF["dqn_catalog"])
        refuse_of_dqn(networks.module_class)
        kwargs: dict[str, Any] = {**networks.policy_kwargs(turned), "optimizer_kwargs": {"eps": self.adam_epsilon}}
        if not networks.is_default:
            return kwargs
        hiddens = check_widths(self.hiddens, "hiddens")
        own = networks.given.get("head_fcnet_hiddens")
        agree = own is None or "hiddens" not in self._given or list(own) == hiddens
        fix = f"model_config['head_fcnet_hiddens']={own} says otherwise. Give one of them."
        require(agree, "hiddens", self.hiddens, fix)
        kwargs["model_config"] = {**networks.options, "double_q": self.double_q, "epsilon": self._given_epsilon()}
        if own is None or not isinstance(self.model_config, dict):
            kwargs["model_config"]["head_fcnet_hiddens"] = hiddens
        if networks.is_recurrent:
            memory = {"memory": "lstm", "memory_size": networks.options["lstm_cell_size"]}
            kwargs |= {**memory, "max_seq_len": networks.options["max_seq_len"], "burn_in": self.burn_in_len}
        else:
            fix = "only a recurrent module burns in: rl_module(model_config={'use_lstm': True})."
            require(self.burn_in_len == 0, "burn_in_len", self.burn_in_len, fix)
        return kwargs


@dataclass(init=False, repr=False, eq=False)
class RainbowConfig(DQNConfig):
    """DQN's settings with all extensions on, as in Rainbow (arXiv:1710.02298, table 1)."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "lr": 6.25e-5,
        "adam_epsilon": 1.5e-4,
        "n_step": 3,
        "num_atoms": 51,
        "noisy": True,
        "hiddens": [512],
        "rollout_fragment_length": 4,
        "target_network_update_freq": 8000,
        "num_steps_sampled_before_learning_starts": 20_000,
        "replay_buffer_config": prioritized(1_000_000, 0.5),
    }
    name: ClassVar[str] = "Rainbow"
