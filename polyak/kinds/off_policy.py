"""Off-policy learning: step, store, replay."""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from gymnasium import spaces

from polyak.algorithm import Algorithm, GymEnv, Recipe
from polyak.checkpoint.saved import Saved, join_state, load_buffer, save_buffer, split_state
from polyak.collecting.exploration import AdditiveNoise, Exploration, WarmUp, gsde
from polyak.collecting.tensors.replay import TensorReplay
from polyak.collecting.train_freq import TrainFreq, convert_train_freq
from polyak.data import Dataset, HerReplayBuffer, ReplayBuffer
from polyak.data.hindsight.relabel import Hindsight
from polyak.data.replay_state import EXTRAS
from polyak.distributed.runners import Transport
from polyak.distributed.shards import ShardedReplay
from polyak.envs import DummyVecEnv, VecEnv
from polyak.experience.samplers import Prioritized, Uniform
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Fraction,
    Learners,
    Natural,
    Only,
    Positive,
    Runners,
    later,
    require,
)
from polyak.hyperparameters.held import Held
from polyak.kinds.dataset import LearnsFromData
from polyak.loops.off_policy import off_policy_loop, storage_of
from polyak.loops.training import Loop
from polyak.noise import ActionNoise, for_environments
from polyak.warning import advise

_NOMINAL_EPISODE = 200
"""Steps in an episode, where a guess is needed."""

GradientSteps = Annotated[int, Only("an integer of at least -1", lambda n: n >= -1)]


@dataclass(eq=False, repr=False)
class OffPolicyAlgorithm(LearnsFromData):
    """Algorithms that learn from a replay buffer, a dataset, or both."""

    env: Becomes[GymEnv | Dataset | Recipe | None, VecEnv | None] = later()
    """An environment, a vector of them, a registered name, or a :class:`~polyak.data.Dataset` to learn from without
    any; ``None`` for a model that only predicts. Afterwards the vectorised environment with every wrapper."""
    _: KW_ONLY
    n_runners: Reload[Runners] = 0
    """Processes that step environments of their own and send what they collect; 0 steps them here. ``env`` is then a
    registered name, or a function that makes an environment or a vector of them (it is given the number of the process
    if it has an argument), and each process makes its own: ``model.n_envs`` counts those of all. Between updates all
    make the same number of steps with the newest weights."""
    n_learners: Reload[Learners] = 1
    """Processes that make each gradient step together, this one among them, on an equal share of the rows each; their
    gradients are averaged. ``compile="auto"`` does not compile these steps."""
    transport: Reload[Transport] = "ray"
    """How other processes are reached: ``"ray"`` (needs ``polyak[scale]``), or ``"local"``, which keeps all of it in
    this process, with the same results."""
    runner_timeout: Reload[Positive | None] = 60.0
    """Seconds within which the environments of a runner on Ray must have answered to a step or a reset; a runner whose
    environments take longer is replaced, with a warning. ``None`` waits for ever."""
    buffer_size: Reload[Count] = 1_000_000
    """Transitions that the replay buffer holds."""
    learning_starts: Natural = 100
    """Environment steps of random actions before the first update."""
    random_warm_up: bool = True
    """Take uniform random actions before ``learning_starts``; ``False``: those of the policy, explored as later."""
    batch_size: Count = 256
    """Transitions per gradient step."""
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]."""
    train_freq: Becomes[int | tuple[int, str], TrainFreq] = later(1)
    """Collect this long before each update: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    gradient_steps: GradientSteps = 1
    """Gradient steps per update; -1 makes as many as transitions were collected."""
    replay_buffer_class: Reload[type[ReplayBuffer] | None] = None
    """Such as :class:`~polyak.data.HerReplayBuffer`; ``None`` takes :class:`~polyak.data.ReplayBuffer`."""
    replay_buffer_kwargs: Reload[dict[str, Any] | None] = None
    """Further arguments of the replay buffer."""
    optimize_memory_usage: Reload[bool] = False
    """Store each observation once instead of twice; the samples are the same."""
    n_steps: Reload[Count | tuple[int, int]] = 1
    """Rewards summed before bootstrapping (n-step returns); ``(least, most)`` draws a number for each transition."""
    prioritized: Reload[bool | dict[str, Any]] = False
    """Replay transitions of large temporal-difference error more often, and weigh their losses less (arXiv:1511.05952).
    A dict sets ``kind`` (``"proportional"`` or ``"rank"``), ``alpha`` (how much errors decide), ``beta`` and
    ``final_beta`` (how much of the bias is undone, at the start and at the end of training), and for
    ``"proportional"`` also ``eps`` (added to errors)."""
    dataset_share: Fraction | None = None
    """Of each minibatch, the share that comes from the dataset where the model has one and learns by acting, too: 0.5
    is RLPD's (arXiv:2302.02948); ``None`` draws from both as if they were one buffer."""
    n_replay_shards: Reload[Runners] = 0
    """Processes that hold the replay buffer, each the steps of some of the environments; 0 keeps it in this one.
    Batches come from all of them, in proportion to their priorities."""
    overlap: bool = False
    """Let the environments step during gradient steps: the first step of each collection is made while the update
    before it runs, with actions of the policy as it was before that update. Pays where environments take long and leave
    the interpreter free, as MuJoCo's and those of ``SubprocVecEnv`` do. Equal seeds give equal results."""

    stores_masks: ClassVar[tuple[str, ...]] = ("masks", "next_masks")

    # Not annotated, since they are hyper-parameters only where a subclass declares them.
    action_noise = cast("ActionNoise | None", None)
    use_sde, use_sde_at_warmup = False, False
    sde_sample_freq = cast("int | Literal['episode']", -1)
    raw_experience: ClassVar[bool] = True
    loop: ClassVar[Callable[..., Loop]] = off_policy_loop
    few_updates: ClassVar[bool] = False
    """Whether fewer updates than transitions are meant, so that there is no advice about it."""
    _empty_at = Held[int]("memory.empty_at")

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        self.train_freq = convert_train_freq(self.train_freq)
        if not isinstance(self.n_steps, int):
            least, most = self.n_steps
            require(1 <= least <= most, "n_steps", self.n_steps, "write (least, most), with 1 <= least <= most.")
        sampler = {**(self.replay_buffer_kwargs or {}), **self._sampler_options()}.get("sampler")
        if self.n_replay_shards:
            self._check_shards(sampler)

    def _check_shards(self, sampler: Any) -> None:
        """Refuse what is asked of a replay buffer that shards cannot do."""
        own, shards = self.replay_buffer_class, f"n_replay_shards={self.n_replay_shards} are made as ReplayBuffer"
        asks = own is not None and issubclass(own, HerReplayBuffer)
        why = "and hindsight asks environments for rewards, which shards have none of" if asks else "and as no other"
        require(own is None, "replay_buffer_class", own, f"{shards}, {why}. Leave it out, or pass n_replay_shards=0.")
        relabel = (self.replay_buffer_kwargs or {}).get("relabel")
        fix = "shards do not see the infos of steps. Leave it out, or pass n_replay_shards=0."
        require(relabel is None, "replay_buffer_kwargs['relabel']", relabel, fix)
        known = sampler in (None, "uniform", "prioritized") or type(sampler) in (Uniform, Prioritized)
        name, value = ("prioritized", self.prioritized) if self.prioritized else ("sampler", sampler)
        fix = "shards draw uniformly or by proportional priorities: ranks in one say nothing of those in another."
        require(known, name, value, fix)

    @classmethod
    def trial(cls) -> dict[str, Any]:
        return {**super().trial(), "buffer_size": 500, "learning_starts": 40, "batch_size": 16}

    # -- construction --------------------------------------------------------------------------------------------------

    def _setup_model(self) -> None:
        self.replay_buffer = None
        super()._setup_model()
        if self.env is not None:
            self.replay_buffer = self._make_replay_buffer()
            self._check_overlap()
        if self.dataset is not None:
            self._replay_dataset()

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        if name == "gamma" and self.n_steps != 1:
            self.memory.discount_by(self.gamma)
        if name == "overlap":
            self._check_overlap()
        if name == "train_freq":
            self._check_train_freq()

    def _check_overlap(self) -> None:
        """Refuse to overlap where sampling would have to ask environments that are under way."""
        asks = isinstance(getattr(self.replay_buffer, "relabel", None), Hindsight)
        if self.overlap and asks and self.env is not None:
            require(
                isinstance(self.env.unwrapped, DummyVecEnv),
                "overlap",
                self.overlap,
                f"hindsight replay asks an environment's compute_reward() meanwhile, which a "
                f"{type(self.env.unwrapped).__name__} cannot answer during a step. Use DummyVecEnv or overlap=False.",
            )

    def _check_built(self) -> None:
        super()._check_built()
        self._check_train_freq()

    def _check_ready(self) -> None:
        super()._check_ready()
        self._check_train_freq()

    def _check_train_freq(self) -> None:
        """Refuse to count episodes in several environments."""
        require(
            self.train_freq.unit == "step" or self.n_envs == 1,
            "train_freq",
            (self.train_freq.frequency, self.train_freq.unit.value),
            f"episodes are counted in a single environment, and n_envs={self.n_envs}. Use train_freq=(n, 'step').",
        )

    def _after_setup(self) -> None:
        super()._after_setup()
        if self.n_envs > 1 and 0 < self.gradient_steps < self.n_envs and not self.few_updates:
            advise(
                "updates per step",
                f"n_envs={self.n_envs} and gradient_steps={self.gradient_steps}: a vectorised step brings "
                f"{self.n_envs} transitions but no more updates: {self.n_envs} times fewer per environment step "
                "than with one environment. Pass gradient_steps=-1 for as many updates as transitions.",
            )

    def _why_numpy(self) -> str | None:
        if self.storing:
            return "it stores steps in its own way"
        if self.replay_buffer_class is not None or self.replay_buffer_kwargs:
            return "its replay buffer is in numpy (replay_buffer_class, replay_buffer_kwargs)"
        if self.n_replay_shards:
            return "its replay buffer is in other processes (n_replay_shards)"
        if not isinstance(self.n_steps, int):
            return "n_steps is drawn for each transition"
        if self.dataset is not None or self.overlap or self.train_freq.unit == "episode":
            return "it learns from a dataset as well, counts episodes in train_freq, or has overlap=True"
        return super()._why_numpy()

    def _episodes_lost(self) -> None:
        if self.replay_buffer is not None:
            self.replay_buffer.cut_episodes()

    def _make_replay_buffer(self) -> ReplayBuffer:
        if self.in_tensors:
            return cast(ReplayBuffer, self._make_tensor_replay())
        if self.n_replay_shards:
            return cast(ReplayBuffer, self._make_shards())
        return self._make_buffer(self.buffer_size, self.n_envs)

    def _make_buffer(self, size: int, n_envs: int, **options: Any) -> ReplayBuffer:
        options = {**self._buffer_options(), **options}
        cls = self.replay_buffer_class or ReplayBuffer
        if issubclass(cls, HerReplayBuffer):
            options.setdefault("env", self.env)
        return cls(
            size,
            self.observation_space,
            self.action_space,
            device=self.device,
            n_envs=n_envs,
            optimize_memory_usage=self.optimize_memory_usage,
            **self._column_options(),
            **options,
        )

    def _make_shards(self) -> ShardedReplay:
        return ShardedReplay(
            self.buffer_size,
            self.observation_space,
            self.action_space,
            self.device,
            self.n_envs,
            self.n_replay_shards,
            self.transport,
            self.seed,
            optimize_memory_usage=self.optimize_memory_usage,
            **self._column_options(),
            **self._buffer_options(),
        )

    def _make_tensor_replay(self) -> TensorReplay:
        assert isinstance(self.n_steps, int)
        return TensorReplay(
            self.buffer_size,
            self.observation_space,
            self.action_space,
            self.device,
            self.n_envs,
            optimize_memory_usage=self.optimize_memory_usage,
            n_steps=self.n_steps,
            gamma=self.gamma,
            columns=self._columns(),
            **self._sampler_options(),
        )

    def _masks_found(self) -> None:
        assert self.replay_buffer is not None
        if self._rows_have_masks:
            return
        if self.replay_buffer.size() > 0:
            raise ValueError(
                "The environment says which actions it allows, but the replay buffer was filled without. Start with an "
                "empty one: a new model, or model.replay_buffer.reset()."
            )
        self._renew_replay_buffer()

    def _renew_replay_buffer(self) -> None:
        """Put one in its place that has the columns of now."""
        assert self.replay_buffer is not None
        self.replay_buffer.close()
        self.replay_buffer = self._make_replay_buffer()

    def _make_room(self, state: Mapping[str, Any]) -> ReplayBuffer:
        """The replay buffer for a saved state, whose rows may have masks though environments have not been reset yet,
        before which some do not say that they have any."""
        assert self.replay_buffer is not None
        masked = any(name.endswith(f"{EXTRAS}{self.stores_masks[0]}") for name in state)
        if masked and self._uses_masks and (self.runner is None or not self.runner.env.masked):
            self._rows_have_masks = True
            self._renew_replay_buffer()
        return self.replay_buffer

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        before, runner = self.env, self.runner
        super().set_env(env, force_reset)
        try:
            if self.replay_buffer is None:
                self.replay_buffer = self._make_replay_buffer()
            elif isinstance(self.replay_buffer, TensorReplay) is not self.in_tensors:
                self._move_experience()
            elif isinstance(self.replay_buffer, ReplayBuffer):
                self.replay_buffer.use_env(self.env)
        except ValueError:
            if before is not None:
                self._use_env(before)
                self.runner = runner
            raise
        self._check_overlap()

    def _move_experience(self) -> None:
        """Replay experience where the present environments want it, in numpy or in tensors.

        Raises:
            ValueError: there is some elsewhere.
        """
        assert self.replay_buffer is not None
        if self.replay_buffer.size() > 0:
            there = "numpy" if self.in_tensors else "tensors"
            raise ValueError(
                f"env={self.env!r} cannot be learned in with the experience that the model has, which is in {there}: "
                "call model.replay_buffer.reset() before, or make a new model."
            )
        self._renew_replay_buffer()

    # -- before learning -----------------------------------------------------------------------------------------------

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        if self.learns_offline:
            return super()._expected_updates(timesteps)
        freq = self.train_freq
        training = max(timesteps - max(self.learning_starts - self.num_timesteps, 0), 0)
        if self.gradient_steps < 0:
            return training, self.batch_size
        steps = freq.frequency if freq.unit == "step" else _NOMINAL_EPISODE * freq.frequency
        return training // (steps * self.n_envs) * self.gradient_steps, self.batch_size

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        if self._acts and self.buffer_size < self.batch_size:
            advise(
                "batch larger than the buffer",
                f"buffer_size={self.buffer_size} holds fewer transitions than batch_size={self.batch_size} draws, so "
                "that every minibatch repeats some. Use a larger buffer_size or a smaller batch_size.",
            )

        if reset:
            self._empty_at = 0
        if not reset and self._acts and self.dataset is None and self.num_timesteps > 0:
            self._fill_empty_buffer()

    def _fill_empty_buffer(self) -> None:
        """A training that continues without its experience collects some first: one row is too little to learn from."""
        if self.replay_buffer is None or self.replay_buffer.size() > 0:
            return
        self._empty_at = self.num_timesteps
        advise(
            "training that continues without its replay buffer",
            f"the model has made {self.num_timesteps} steps, but its replay buffer is empty: it is not in the file. "
            f"Training continues once learning_starts={self.learning_starts} further steps of the policy are "
            "collected. To keep the old experience, save(path, include=['replay_buffer']) and load(path, resume=True), "
            "or use save_replay_buffer() and load_replay_buffer().",
        )

    def _start_episodes(self) -> None:
        assert self.replay_buffer is not None
        if self._collection is not None and self._collection.pending is not None:
            storage_of(self).record(self._collection.pending)
        super()._start_episodes()
        self.replay_buffer.cut_episodes()  # no n-step window and no hindsight goal may reach across the reset

    # -- acting --------------------------------------------------------------------------------------------------------

    def _exploration(self) -> dict[str, Exploration]:
        parts = {**gsde(self.use_sde, self.sde_sample_freq), **self._additive_noise()}
        if self.dataset is None and self.random_warm_up and not (self.use_sde and self.use_sde_at_warmup):
            parts["warm_up"] = WarmUp(self._progress, self.learning_starts, self._random_actions())
        return parts

    def _additive_noise(self) -> dict[str, Exploration]:
        """What adds ``action_noise``, if there is any."""
        if self.action_noise is None or not isinstance(self.action_space, spaces.Box):
            return {}
        self._put(action_noise=for_environments(self.action_noise, self._envs_of_an_actor))
        return {"noise": AdditiveNoise(self.action_noise)}

    # -- logging and files ---------------------------------------------------------------------------------------------

    def dump_logs(self) -> None:
        self._write_logs(**({} if self.learns_offline else {"episodes": self._episode_num}))

    dump_logs.__doc__ = Algorithm.dump_logs.__doc__

    def hyperparameters(self) -> dict[str, Any]:
        values = super().hyperparameters()
        if "train_freq" in values:
            values["train_freq"] = (self.train_freq.frequency, self.train_freq.unit.value)
        if (options := values.get("replay_buffer_kwargs")) and "env" in options:
            values["replay_buffer_kwargs"] = {k: v for k, v in options.items() if k != "env"}
        return values

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if "replay_buffer" in include and not self.learns_offline:
            if self.clock.series is None:
                self.memory.mend()
            require(self.replay_buffer is not None, "include", ["replay_buffer"], "this model has no replay buffer.")
            assert self.replay_buffer is not None
            saved.info["replay"], saved.replay = split_state(self.replay_buffer.state_dict())

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if resume and saved.replay and not self.learns_offline:
            state = join_state(saved.info["replay"], saved.replay)
            self._make_room(state).load_state_dict(state)

    def save_replay_buffer(self, path: Any) -> None:
        """Write the replay buffer's filled part to a file, without pickle.

        Args:
            path: a path or a file opened for writing.

        Raises:
            ValueError: the model has no replay buffer yet, since it has no environment.
        """
        if self.replay_buffer is None:
            raise ValueError("The replay buffer is not defined: the model has no environment. Call set_env(env) first.")
        save_buffer(self.replay_buffer, path)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True, *, trust: bool = False) -> None:
        """Read what :meth:`save_replay_buffer` wrote, or a replay buffer of Stable-Baselines3.

        Where the ``compute_reward`` of the model's environment is another than that which hindsight experience was
        collected with, all its rewards are recomputed, with a warning.

        Args:
            path: a path or a file opened for reading.
            truncate_last_traj: for hindsight experience: take the last, unfinished episode as cut off there, since the
                environment starts new episodes.
            trust: also read a pickle that holds other things than Stable-Baselines3 puts there. It can run any code:
                set this only for files that you trust.

        Raises:
            ValueError: not such a file, or it does not fit this model.
        """
        if getattr(self, "replay_buffer", None) is None:
            self.replay_buffer = self._make_replay_buffer()
        assert self.replay_buffer is not None
        self.replay_buffer.device = torch.device(self.device)
        load_buffer(self.replay_buffer, path, trust, self._make_room)
        if isinstance(self.replay_buffer, HerReplayBuffer):
            self.replay_buffer.env = self.env
            if truncate_last_traj:
                self.replay_buffer.truncate_last_trajectory()


def minus_action_dim(space: spaces.Space) -> float:
    """The usual target entropy of a continuous policy: minus the number of action dimensions."""
    return -float(math.prod(space.shape or (1,)))
