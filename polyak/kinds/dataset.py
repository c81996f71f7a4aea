"""Learning from a dataset: instead of an environment, beside it, and before it.

A model that is given a :class:`~polyak.data.Dataset` as its ``env`` learns from that alone, and its time is counted in
gradient steps. What is here suffices for that. An off-policy algorithm adds acting: given an environment later
(:meth:`LearnsFromData.set_env`), the same model continues there. From then on minibatches come from both, and time is
counted in environment steps.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import numpy as np
from typing_extensions import Self

from polyak.algorithm import GymEnv, Recipe
from polyak.callbacks.callback import MaybeCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.checkpoint.saved import Saved, join_state, split_state
from polyak.data import Dataset, InsufficientMemoryError, ReplayBuffer
from polyak.data.replay_memory import ReplayMemory
from polyak.data.sampling.reduce import NStep, Sequence
from polyak.data.step import Step
from polyak.envs.spaces import SpaceError
from polyak.experience.samplers import make_prioritized
from polyak.hyperparameters.declaration import HyperparameterError, require
from polyak.hyperparameters.held import Held
from polyak.kinds.network_algorithm import NetworkAlgorithm
from polyak.learning.replayed_sequences import SequenceRows
from polyak.loops.offline import offline_loop
from polyak.loops.training import Loop, Training
from polyak.loops.updates import Metrics, updates_of


class LearnsFromData(NetworkAlgorithm):
    """Algorithms that replay a dataset, and what they have experienced themselves if they act."""

    saves_also: ClassVar[frozenset[str]] = frozenset({"replay_buffer"})
    # Not annotated, since they are hyper-parameters only where a subclass declares them.
    batch_size, gamma, optimize_memory_usage = 256, 1.0, False
    n_steps = cast("int | tuple[int, int]", 1)
    prioritized = cast("bool | dict[str, Any]", False)
    replay_buffer_kwargs = cast("dict[str, Any] | None", None)
    dataset_share = cast("float | None", None)
    priorities: ClassVar[Mapping[str, Any]] = {}
    """What ``prioritized=True`` stands for, where that is not the samplers' defaults."""
    loop: ClassVar[Callable[..., Loop]] = offline_loop
    updates: ClassVar[Callable[..., Any]] = updates_of
    """How it learns from its memory."""
    storing: ClassVar[tuple[Callable[[Any, Step], Step], ...]] = ()
    """Called with a model and a step of the environments, one after another: what is stored in its place."""
    after_step: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with a model after each step of the environments, when it is stored; from a dataset alone, after each
    gradient step."""
    watching: ClassVar[tuple[Callable[[Any, Metrics], None], ...]] = ()
    """Called with a model and what its gradient steps measured."""
    replay_buffer = Held[ReplayBuffer | None]("memory.own")
    """Its own experience."""
    dataset = Held[Dataset | None]("memory.dataset")
    """What it learns from besides its own experience."""
    data_buffer = Held[ReplayBuffer | None]("memory.recorded")
    """The dataset as it is replayed."""

    def __post_init__(self, _init_setup_model: bool) -> None:
        self.memory = ReplayMemory()
        super().__post_init__(_init_setup_model)

    # -- construction --------------------------------------------------------------------------------------------------

    def _attach_env(self, env: Any) -> None:
        if not isinstance(env, Dataset):
            return super()._attach_env(env)
        self._check_action_space(env.action_space)
        self.dataset = env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def _setup_model(self) -> None:
        super()._setup_model()
        if (recurrence := self.policy.recurrence) is not None:
            memory = tuple(self.policy.initial_memory(1) or ())
            self.learner.rows_of = SequenceRows(recurrence.burn_in, recurrence.length, self._one_n_steps, memory)

    @property
    def _one_n_steps(self) -> int:
        """``n_steps`` of sequences, which take one number."""
        require(isinstance(self.n_steps, int), "n_steps", self.n_steps, "sequences take one number of steps.")
        return cast(int, self.n_steps)

    def _summary(self) -> dict[str, str]:
        dataset = getattr(self, "dataset", None)  # of a model that is not built yet there is none
        return {**super()._summary(), **({} if dataset is None else {"dataset": repr(dataset)})}

    @property
    def _acts(self) -> bool:
        return not self.learns_offline

    @property
    def learns_offline(self) -> bool:
        """Whether it has a dataset and no environment."""
        return self.env is None and self.memory.dataset is not None

    def set_dataset(self, dataset: Dataset) -> None:
        """Learn from these transitions, too: those of its own experience are replayed beside them.

        Args:
            dataset: of the model's spaces: see :meth:`~polyak.data.Dataset.for_env`.

        Raises:
            ValueError: it has others.
        """
        check_spaces(dataset, self)
        self.dataset = dataset
        self._check_mixture()
        self._replay_dataset()

    def _check_mixture(self) -> None:
        """Refuse priorities where minibatches come from two buffers: neither knows how the other's rows compare."""
        if self.dataset is not None and self.env is not None:
            fix = "a model that learns from a dataset and by acting draws uniformly. Use prioritized=False."
            require(not self.prioritized, "prioritized", self.prioritized, fix)

    def _replay_dataset(self) -> None:
        """Fill a buffer with what the dataset holds: in memory, or in a temporary file where it does not fit."""
        assert self.dataset is not None
        try:
            buffer = self._make_buffer(len(self.dataset), n_envs=1)
        except InsufficientMemoryError:
            buffer = self._make_buffer(len(self.dataset), n_envs=1, storage_device="disk")
        blank = tuple(self.policy.initial_memory(1) or ())  # no dataset has recurrent states: sequences begin afresh
        buffer.fill(self._with_columns(self.dataset), self.policy.codec.from_env, self._reward_of_data, blank=blank)
        self.data_buffer = buffer

    def _with_columns(self, dataset: Dataset) -> Dataset:
        """A dataset with what the learner reads of it besides; here as it is."""
        return dataset

    def _make_buffer(self, size: int, n_envs: int, **options: Any) -> ReplayBuffer:
        """A replay buffer as the hyper-parameters describe it, but for some options."""
        return ReplayBuffer(
            size,
            self.observation_space,
            self.action_space,
            device=self.device,
            n_envs=n_envs,
            optimize_memory_usage=self.optimize_memory_usage,
            **self._column_options(),
            **{**self._buffer_options(), **options},
        )

    def _buffer_options(self) -> dict[str, Any]:
        """Arguments of the replay buffer besides those that every one has."""
        many: dict[str, Any] = {} if self.n_steps == 1 else {"n_steps": self.n_steps, "gamma": self.gamma}
        if (recurrence := self.policy.recurrence) is not None:
            fix = "a recurrent policy draws sequences as its own max_seq_len and burn_in say: leave it out."
            own = (self.replay_buffer_kwargs or {}).get("reduce")
            require(own is None, "replay_buffer_kwargs['reduce']", own, fix)
            n_step = NStep(self._one_n_steps, self.gamma)
            many = {"reduce": Sequence(recurrence.length + n_step.n_steps - 1, recurrence.burn_in, n_step)}
        return {**(self.replay_buffer_kwargs or {}), **many, **self._sampler_options()}

    def _sampler_options(self) -> dict[str, Any]:
        """The argument of the replay buffer that ``prioritized`` stands for, if any."""
        if not self.prioritized:
            return {}
        fix = "replay_buffer_kwargs names a sampler, too: leave out one of them."
        require("sampler" not in (self.replay_buffer_kwargs or {}), "prioritized", self.prioritized, fix)
        options = self.priorities if self.prioritized is True else self.prioritized
        try:
            return {"sampler": make_prioritized(**options)}
        except (TypeError, ValueError) as error:
            raise HyperparameterError(f"prioritized={self.prioritized!r} cannot be used: {error}") from None

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        return timesteps, self.batch_size

    def _reward_of_data(self, rewards: np.ndarray) -> np.ndarray:
        """What is learned from instead of rewards [B], of the dataset and of environments alike."""
        return rewards

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        if self.env is None and self.dataset is not None:
            env = self._vectorised(env)
            self.n_envs = env.num_envs
        super().set_env(env, force_reset)
        self._check_mixture()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        eval_env: GymEnv | str | None = None,
        eval_freq: int | None = None,
        n_eval_episodes: int = 10,
    ) -> Self:
        """Train, on experience, on a dataset, or on both.

        Args:
            total_timesteps: environment steps to make, over all environments; from a dataset alone, gradient steps.
                With ``train_freq`` in episodes the one under way is finished, unless none has ended in 100,000 steps:
                training then ends with a warning.
            callback: called at every step; a function, a callback object, or a list of them.
            log_interval: episodes between two log tables, or from a dataset alone iterations of 500 gradient steps;
                ``None`` for none.
            tb_log_name: name of the run's folder under ``tensorboard_log``; ``None`` takes the algorithm's name.
            reset_num_timesteps: start counting at zero; ``False`` continues the counters and logs.
            progress_bar: show one; needs ``polyak[extra]``.
            eval_env: where to evaluate meanwhile, an environment or a registered name; ``None``: nowhere.
            eval_freq: steps between two evaluations; ``None``: ten in all.
            n_eval_episodes: episodes of each.

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
            while self.clock.steps < self.clock.total and loop.iterate():
                pass
        return self

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """Sample minibatches and learn from them.

        Args:
            gradient_steps: how many.
            batch_size: transitions in each.
        """
        replay = self.gamma, self.dataset_share, self.normalisation.replay
        type(self).updates(self).make(gradient_steps, batch_size, *replay)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if "replay_buffer" in include and self.learns_offline:
            assert self.data_buffer is not None
            saved.info["replay"], saved.replay = split_state(self.data_buffer.drawing_state())

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if resume and "replay" in saved.info and self.learns_offline:
            assert self.data_buffer is not None
            self.data_buffer.load_drawing_state(join_state(saved.info["replay"], saved.replay))

    def _enter(self, saved: Saved, env: Any) -> None:
        super()._enter(saved, None if isinstance(env, Dataset) else env)
        if isinstance(env, Dataset):
            check_spaces(env, self)
            self.dataset = env


def check_spaces(dataset: Dataset, model: Any) -> None:
    """Refuse a dataset of other spaces than a model's.

    Raises:
        SpaceError: it has others.
    """
    for what in ("observation_space", "action_space"):
        if getattr(dataset, what) != getattr(model, what):
            raise SpaceError(
                f"dataset has {what}={getattr(dataset, what)}, but the model has {getattr(model, what)}. Use "
                "dataset.for_env(env) with the model's environment."
            )


def watched(callback: MaybeCallback, eval_env: Any, eval_freq: int | None, n_eval_episodes: int, steps: int) -> Any:
    """A callback, and an evaluation beside it.

    Args:
        callback: what the user gave.
        eval_env: where to evaluate; ``None``: nowhere.
        eval_freq: steps between two evaluations; ``None``: ten in all.
        n_eval_episodes: episodes of each.
        steps: of the whole training.
    """
    if eval_env is None:
        require(eval_freq is None, "eval_freq", eval_freq, "there is no eval_env to evaluate in.")
        return callback
    freq = max(steps // 10, 1) if eval_freq is None else eval_freq
    evaluation = EvalCallback(eval_env, eval_freq=freq, n_eval_episodes=n_eval_episodes, verbose=0)
    others = callback if isinstance(callback, list) else [] if callback is None else [callback]
    return [*others, evaluation]
