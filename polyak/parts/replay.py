"""The replay that minibatches are drawn from: a dataset, the model's own experience, or both."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch
from gymnasium import spaces

from polyak.checkpoint.saved import Saved, join_state, load_buffer, save_buffer, split_state
from polyak.collecting.exploration import AdditiveNoise, Exploration, WarmUp, gsde
from polyak.collecting.train_freq import TrainFreq, convert_train_freq
from polyak.distributed.placement import placement_of
from polyak.distributed.runners import RunnerGroup
from polyak.distributed.shards import ShardedReplay
from polyak.envs import DummyVecEnv
from polyak.envs.spaces import SpaceError
from polyak.experience import (
    Dataset,
    DictReplayBuffer,
    HerReplayBuffer,
    InsufficientMemoryError,
    NStepReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from polyak.experience.hindsight.relabel import Hindsight
from polyak.experience.replay_memory import ReplayMemory
from polyak.experience.replay_state import EXTRAS
from polyak.experience.samplers import Prioritized, Uniform, make_prioritized
from polyak.experience.sampling.reduce import NStep, Sequence
from polyak.hyperparameters.declaration import HyperparameterError, require
from polyak.learning.replayed_sequences import SequenceRows
from polyak.loops.off_policy import storage_of
from polyak.loops.updates import updates_of
from polyak.noise import for_environments
from polyak.parts.acting import random_actions
from polyak.parts.part import Part
from polyak.warning import advise

OF_TENSORS = frozenset({ReplayBuffer, DictReplayBuffer, HerReplayBuffer, NStepReplayBuffer, PrioritizedReplayBuffer})
"""Replay buffer classes that support tensors; a user's own take arrays."""
_NOMINAL_EPISODE = 200
"""Assumed length of an episode in steps."""


class DatasetReplay(Part):
    """Replays a dataset."""

    priorities: ClassVar[Mapping[str, Any]] = {}
    """Arguments that ``prioritized=True`` stands for, if they differ from the sampler's defaults."""
    stores_masks: ClassVar[tuple[str, ...]] = ("masks",)
    saves_also: ClassVar = ("replay_buffer",)

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.memory = ReplayMemory()

    @property
    def offline(self) -> bool:
        """Whether there is a dataset and no environment."""
        return self.model.env is None and self.memory.dataset is not None

    # -- the dataset ---------------------------------------------------------------------------------------------------

    def attach(self, env: Any) -> bool:
        if not isinstance(env, Dataset):
            return False
        model = self.model
        if hasattr(model, "action_space"):
            check_spaces(env, model)
        else:
            model._check_action_space(env.action_space)
            model.observation_space, model.action_space = env.observation_space, env.action_space
        self.memory.dataset = env
        return True

    def use(self, dataset: Dataset) -> None:
        """Learn from these transitions, too, beside the model's own experience.

        Args:
            dataset: of the model's spaces: see :meth:`~polyak.experience.Dataset.for_env`.

        Raises:
            ValueError: the spaces differ.
        """
        check_spaces(dataset, self.model)
        self.memory.dataset = dataset
        self._check_mixture()
        self.read_dataset()

    def _check_mixture(self) -> None:
        """Refuses prioritised sampling from two buffers, since their priorities are not comparable."""
        if self.memory.dataset is not None and self.model.env is not None:
            fix = "a model that learns from a dataset and by acting draws uniformly. Use prioritized=False."
            require(not self.model.prioritized, "prioritized", self.model.prioritized, fix)

    def read_dataset(self) -> None:
        """Fills a buffer with the dataset, in memory, or in a temporary file if it does not fit."""
        dataset, policy = self.memory.dataset, self.model.policy
        assert dataset is not None
        try:
            buffer = self.make(self.least_rows(dataset), n_envs=1)
        except InsufficientMemoryError:
            buffer = self.make(self.least_rows(dataset), n_envs=1, storage_device="disk")
        blank = tuple(policy.initial_memory(1) or ())  # datasets lack recurrent states: use the initial one
        buffer.fill(self.with_columns(dataset), policy.codec.from_env, self.rewards, blank=blank)
        self.memory.recorded = buffer

    def least_rows(self, dataset: Dataset) -> int:
        """Returns the number of rows of the dataset's buffer."""
        return len(dataset)

    def with_columns(self, dataset: Dataset) -> Dataset:
        """Returns the dataset with further columns that the learner reads; by default unchanged."""
        return dataset

    def rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Returns the rewards [B] to learn from; see :class:`~polyak.parts.units.Units`."""
        units = self.model.parts.get("units")
        return rewards if units is None else units.rewards(rewards)

    # -- buffers -------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        model = self.model
        if (recurrence := model.policy.recurrence) is not None:
            memory = tuple(model.policy.initial_memory(1) or ())
            model.learner.rows_of = SequenceRows(recurrence.burn_in, recurrence.length, self._one_n_steps, memory)
        if self.memory.dataset is not None:
            self.read_dataset()

    @property
    def _one_n_steps(self) -> int:
        """``n_steps`` of sequences, which support a single number."""
        n_steps = self.model.n_steps
        require(isinstance(n_steps, int), "n_steps", n_steps, "sequences take one number of steps.")
        return cast(int, n_steps)

    @property
    def buffer_class(self) -> type[ReplayBuffer]:
        """The class of replay buffers."""
        return ReplayBuffer

    def make(self, size: int, n_envs: int, cls: Any = None, **options: Any) -> ReplayBuffer:
        """Returns a replay buffer with the model's hyper-parameters and further options; ``cls``: its class."""
        model, kind = self.model, self.buffer_class if cls is None else cls
        env = {"env": model.env} if issubclass(kind, HerReplayBuffer) else {}
        made: ReplayBuffer = kind(
            size,
            model.observation_space,
            model.action_space,
            device=model.device,
            n_envs=n_envs,
            optimize_memory_usage=model.optimize_memory_usage,
            **self.column_options(),
            **{**env, **self.options(), **options},
        )
        return made

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the replay buffer that not every buffer takes."""
        model = self.model
        own: dict[str, Any] = model.replay_buffer_kwargs or {}
        many: dict[str, Any] = {} if model.n_steps == 1 else {"n_steps": model.n_steps, "gamma": model.gamma}
        if (recurrence := model.policy.recurrence) is not None:
            fix = "a recurrent policy draws sequences as its own max_seq_len and burn_in say: leave it out."
            require(own.get("reduce") is None, "replay_buffer_kwargs['reduce']", own.get("reduce"), fix)
            n_step = NStep(self._one_n_steps, model.gamma)
            many = {"reduce": Sequence(recurrence.length + n_step.n_steps - 1, recurrence.burn_in, n_step)}
        return {**own, **many, **self._sampler()}

    def _sampler(self) -> dict[str, Any]:
        """Returns the replay buffer's argument for ``prioritized``, if set."""
        prioritized = self.model.prioritized
        if not prioritized:
            return {}
        fix = "replay_buffer_kwargs names a sampler, too: leave out one of them."
        require("sampler" not in (self.model.replay_buffer_kwargs or {}), "prioritized", prioritized, fix)
        try:
            return {"sampler": make_prioritized(**(self.priorities if prioritized is True else prioritized))}
        except (TypeError, ValueError) as error:
            raise HyperparameterError(f"prioritized={prioritized!r} cannot be used: {error}") from None

    def check(self) -> None:
        self._sampler()

    def change_env(self) -> None:
        self._check_mixture()

    def expected_updates(self, timesteps: int) -> tuple[int, int] | None:
        return timesteps, self.model.batch_size

    # -- learning ------------------------------------------------------------------------------------------------------

    def updates(self) -> Any:
        """Returns the object that makes gradient steps on the model's memory."""
        return updates_of(self.model)

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """Sample minibatches and make gradient steps.

        Args:
            gradient_steps: number of gradient steps.
            batch_size: transitions per minibatch.
        """
        model = self.model
        replay = model.gamma, model.dataset_share, model.normalisation.replay
        self.updates().make(gradient_steps, batch_size, *replay)

    # -- files ---------------------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, str]:
        return {} if self.memory.dataset is None else {"dataset": repr(self.memory.dataset)}

    def save(self, saved: Saved, include: set[str]) -> None:
        if "replay_buffer" in include and self.offline:
            assert self.memory.recorded is not None
            saved.info["replay"], saved.replay = split_state(self.memory.recorded.drawing_state())

    def resume(self, saved: Saved, resume: bool) -> None:
        if resume and "replay" in saved.info and self.offline:
            assert self.memory.recorded is not None
            self.memory.recorded.load_drawing_state(join_state(saved.info["replay"], saved.replay))


def log_episodes(model: Any) -> None:
    """Logs the number of finished episodes, if there are environments."""
    if not model.learns_offline:
        model.logger.record("time/episodes", model.clock.episodes, exclude="tensorboard")


class ExperienceReplay(DatasetReplay):
    """Replays the model's own experience, and a dataset if it has one."""

    raw: ClassVar = True
    logs: ClassVar = (log_episodes,)
    stores_masks: ClassVar = ("masks", "next_masks")
    explores_by: ClassVar[tuple[str, ...]] = (
        *("learning_starts", "random_warm_up", "action_noise"),
        *("use_sde", "use_sde_at_warmup", "sde_sample_freq"),
    )
    few_updates: ClassVar[bool] = False
    """Whether fewer updates than transitions are intended, so that no advice is given."""
    numpy_alone: ClassVar[str | None] = None
    """The reason why experience is stored in numpy only; ``None``: tensors are supported, too."""

    # -- construction --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        model = self.model
        model.train_freq = convert_train_freq(model.train_freq)
        if not isinstance(model.n_steps, int):
            least, most = model.n_steps
            require(1 <= least <= most, "n_steps", model.n_steps, "write (least, most), with 1 <= least <= most.")
        sampler = {**(model.replay_buffer_kwargs or {}), **self._sampler()}.get("sampler")
        if model.n_replay_shards:
            self._check_shards(sampler)

    def _check_shards(self, sampler: Any) -> None:
        """Refuses options of the replay buffer that shards do not support."""
        model = self.model
        own, shards = model.replay_buffer_class, f"n_replay_shards={model.n_replay_shards} are made as ReplayBuffer"
        asks = own is not None and issubclass(own, HerReplayBuffer)
        why = "and hindsight asks environments for rewards, which shards have none of" if asks else "and as no other"
        require(own is None, "replay_buffer_class", own, f"{shards}, {why}. Leave it out, or pass n_replay_shards=0.")
        relabel = (model.replay_buffer_kwargs or {}).get("relabel")
        fix = "shards do not see the infos of steps. Leave it out, or pass n_replay_shards=0."
        require(relabel is None, "replay_buffer_kwargs['relabel']", relabel, fix)
        known = sampler in (None, "uniform", "prioritized") or type(sampler) in (Uniform, Prioritized)
        name, value = ("prioritized", model.prioritized) if model.prioritized else ("sampler", sampler)
        fix = "shards draw uniformly or by proportional priorities: ranks in one say nothing of those in another."
        require(known, name, value, fix)

    def build(self) -> None:
        model = self.model
        self.memory.own = None if model.env is None else self.make_own()
        super().build()
        self._check_overlap()
        if model.n_envs > 1 and 0 < model.gradient_steps < model.n_envs and not self.few_updates:
            advise(
                "updates per step",
                f"n_envs={model.n_envs} and gradient_steps={model.gradient_steps}: a vectorised step brings "
                f"{model.n_envs} transitions but no more updates: {model.n_envs} times fewer per environment step "
                "than with one environment. Pass gradient_steps=-1 for as many updates as transitions.",
            )

    def check_ready(self, first: bool) -> None:
        """Refuses to count episodes in several environments."""
        model = self.model
        freq: TrainFreq = model.train_freq
        require(
            freq.unit == "step" or model.n_envs == 1,
            "train_freq",
            (freq.frequency, freq.unit.value),
            f"episodes are counted in a single environment, and n_envs={model.n_envs}. Use train_freq=(n, 'step').",
        )

    def adopt(self, name: str, before: Any) -> None:
        if name == "gamma" and self.model.n_steps != 1:
            self.memory.discount_by(self.model.gamma)
        if name == "overlap":
            self._check_overlap()
        if name == "train_freq":
            self.check_ready(False)

    def _check_overlap(self) -> None:
        """Refuses ``overlap`` if sampling requires calls of environments during their step."""
        model = self.model
        asks = isinstance(getattr(self.memory.own, "relabel", None), Hindsight)
        if model.overlap and asks and model.env is not None:
            require(
                isinstance(model.env.unwrapped, DummyVecEnv),
                "overlap",
                model.overlap,
                f"hindsight replay asks an environment's compute_reward() meanwhile, which a "
                f"{type(model.env.unwrapped).__name__} cannot answer during a step. Use DummyVecEnv or overlap=False.",
            )

    def change_env(self) -> None:
        own, in_tensors = self.memory.own, self.model.in_tensors
        if own is None:
            self.memory.own = self.make_own()
        elif getattr(own, "in_tensors", in_tensors) is not in_tensors:
            if own.size() > 0:
                there = "numpy" if in_tensors else "tensors"
                raise ValueError(
                    f"env={self.model.env!r} cannot be learned in with the experience that the model has, which is in "
                    f"{there}: call model.replay_buffer.reset() before, or make a new model."
                )
            self._renew()
        elif isinstance(own, ReplayBuffer):
            own.use_env(self.model.env)
        self._check_overlap()
        super().change_env()

    # -- buffers -------------------------------------------------------------------------------------------------------

    @property
    def buffer_class(self) -> type[ReplayBuffer]:
        return self.model.replay_buffer_class or ReplayBuffer

    def make_own(self) -> ReplayBuffer:
        """Returns the buffer of the model's own experience: in numpy, in tensors, or in other processes."""
        model = self.model
        if model.n_replay_shards:
            elsewhere = {"n_shards": model.n_replay_shards, "transport": model.transport, "model_seed": model.seed}
            elsewhere["placement"] = placement_of(model.placement, "shards")
            return self.make(model.buffer_size, model.n_envs, ShardedReplay, **elsewhere)
        return self.make(model.buffer_size, model.n_envs, **({"in_tensors": True} if model.in_tensors else {}))

    def make_group(self, actor: Any) -> RunnerGroup:
        """Returns the model's runners."""
        model = self.model
        held = model.env, actor, model._progress, model._split, model._uses_masks
        return RunnerGroup(*held, raw=model.raw_experience, in_advance=model.steps_per_request)

    def why_numpy(self) -> str | None:
        model = self.model
        if self.numpy_alone is not None:
            return self.numpy_alone
        if any(part.storing for part in model.parts.values()):
            return "it stores steps in its own way"
        if self.buffer_class not in OF_TENSORS:
            return f"replay_buffer_class={self.buffer_class.__name__} is one of your own, whose methods take arrays"
        options = model.replay_buffer_kwargs or {}
        if options.get("copy_info_dict") or options.get("storage_device", "auto") != "auto":
            return "replay_buffer_kwargs keep rows or infos in main memory (storage_device, copy_info_dict)"
        if model.overlap or model.train_freq.unit == "episode":
            return "it counts episodes in train_freq, or has overlap=True"
        return None

    def lose_episodes(self) -> None:
        if self.memory.own is not None:
            self.memory.own.cut_episodes()

    def find_masks(self) -> None:
        own, model = self.memory.own, self.model
        assert own is not None
        if model._rows_have_masks:
            return
        if own.size() > 0:
            raise ValueError(
                "The environment says which actions it allows, but the replay buffer was filled without. Start with an "
                "empty one: a new model, or model.replay_buffer.reset()."
            )
        self._renew()

    def _renew(self) -> None:
        """Replaces the buffer by a new one with the present columns."""
        assert self.memory.own is not None
        self.memory.own.close()
        self.memory.own = self.make_own()

    def _make_room(self, state: Mapping[str, Any]) -> ReplayBuffer:
        """Returns the replay buffer for a saved state. Its rows may have masks although the environments have not been
        reset yet, before which some give none."""
        model = self.model
        masked = any(name.endswith(f"{EXTRAS}{self.stores_masks[0]}") for name in state)
        if masked and model._uses_masks and (model.runner is None or not model.runner.env.masked):
            model._rows_have_masks = True
            self._renew()
        assert self.memory.own is not None
        return self.memory.own

    # -- learning ------------------------------------------------------------------------------------------------------

    def expected_updates(self, timesteps: int) -> tuple[int, int] | None:
        model = self.model
        if self.offline:
            return super().expected_updates(timesteps)
        freq = model.train_freq
        training = max(timesteps - max(model.learning_starts - model.num_timesteps, 0), 0)
        if model.gradient_steps < 0:
            return training, model.batch_size
        steps = freq.frequency if freq.unit == "step" else _NOMINAL_EPISODE * freq.frequency
        return training // (steps * model.n_envs) * model.gradient_steps, model.batch_size

    def begin(self, reset: bool) -> None:
        model, memory = self.model, self.memory
        if not model._acts:
            return
        if model.buffer_size < model.batch_size:
            advise(
                "batch larger than the buffer",
                f"buffer_size={model.buffer_size} holds fewer transitions than batch_size={model.batch_size} draws, so "
                "that every minibatch repeats some. Use a larger buffer_size or a smaller batch_size.",
            )
        if reset:
            memory.empty_at = 0
        goes_on = not reset and memory.dataset is None and model.num_timesteps > 0
        if not goes_on or memory.own is None or memory.own.size() > 0:
            return
        memory.empty_at = model.num_timesteps  # one row is not enough to learn from
        advise(
            "training that continues without its replay buffer",
            f"the model has made {model.num_timesteps} steps, but its replay buffer is empty: it is not in the file. "
            f"Training continues once learning_starts={model.learning_starts} further steps of the policy are "
            "collected. To keep the old experience, save(path, include=['replay_buffer']) and load(path, resume=True), "
            "or use save_replay_buffer() and load_replay_buffer().",
        )

    def end_episodes(self) -> None:
        """Ends n-step windows and hindsight episodes, which must not reach across the reset."""
        model = self.model
        if model._collection is not None and model._collection.pending is not None:
            storage_of(model).record(model._collection.pending)
        assert self.memory.own is not None
        self.memory.own.cut_episodes()

    def exploration(self) -> dict[str, Exploration]:
        model = self.model
        parts = gsde(model.use_sde, model.sde_sample_freq)
        if model.action_noise is not None and isinstance(model.action_space, spaces.Box):
            model._put(action_noise=for_environments(model.action_noise, model._envs_of_an_actor))
            parts["noise"] = AdditiveNoise(model.action_noise)
        if self.memory.dataset is None and model.random_warm_up and not (model.use_sde and model.use_sde_at_warmup):
            parts["warm_up"] = WarmUp(model._progress, model.learning_starts, random_actions(model))
        return parts

    # -- files ---------------------------------------------------------------------------------------------------------

    def arguments(self, values: dict[str, Any]) -> None:
        if "train_freq" in values:
            values["train_freq"] = (self.model.train_freq.frequency, self.model.train_freq.unit.value)
        if (options := values.get("replay_buffer_kwargs")) and "env" in options:
            values["replay_buffer_kwargs"] = {k: v for k, v in options.items() if k != "env"}

    def save(self, saved: Saved, include: set[str]) -> None:
        if "replay_buffer" not in include or self.offline:
            super().save(saved, include)
            return
        if self.model.clock.series is None:
            self.memory.mend()
        require(self.memory.own is not None, "include", ["replay_buffer"], "this model has no replay buffer.")
        assert self.memory.own is not None
        saved.info["replay"], saved.replay = split_state(self.memory.own.state_dict())

    def resume(self, saved: Saved, resume: bool) -> None:
        if not resume or not saved.replay or self.offline:
            super().resume(saved, resume)
            return
        state = join_state(saved.info["replay"], saved.replay)
        self._make_room(state).load_state_dict(state)

    def write(self, path: Any) -> None:
        """Write the stored part of the replay buffer to a file, without pickle.

        Args:
            path: a path or a file opened for writing.

        Raises:
            ValueError: the model has no replay buffer yet, since it has no environment.
        """
        if self.memory.own is None:
            raise ValueError("The replay buffer is not defined: the model has no environment. Call set_env(env) first.")
        save_buffer(self.memory.own, path)

    def read(self, path: Any, truncate_last_traj: bool = True, *, trust: bool = False) -> None:
        """Read a file of :meth:`save_replay_buffer`, or a replay buffer of Stable-Baselines3.

        If ``compute_reward`` of the model's environment differs from the one that hindsight experience was collected
        with, all its rewards are recomputed, with a warning.

        Args:
            path: a path or a file opened for reading.
            truncate_last_traj: for hindsight experience: truncate the last, unfinished episode, since the environment
                starts new episodes.
            trust: also read a pickle with objects that Stable-Baselines3 does not write. It can run any code: set this
                only for files that you trust.

        Raises:
            ValueError: the file is not a replay buffer, or does not fit this model.
        """
        memory, model = self.memory, self.model
        if getattr(memory, "own", None) is None:  # it may have been deleted
            memory.own = self.make_own()
        assert memory.own is not None
        memory.own.device = torch.device(model.device)
        load_buffer(memory.own, path, trust, self._make_room)
        if isinstance(memory.own, HerReplayBuffer):
            memory.own.env = model.env
            if truncate_last_traj:
                memory.own.truncate_last_trajectory()


def check_spaces(dataset: Dataset, model: Any) -> None:
    """Refuses a dataset whose spaces differ from a model's.

    Raises:
        SpaceError: the spaces differ.
    """
    for what in ("observation_space", "action_space"):
        if getattr(dataset, what) != getattr(model, what):
            raise SpaceError(
                f"dataset has {what}={getattr(dataset, what)}, but the model has {getattr(model, what)}. Use "
                "dataset.for_env(env) with the model's environment."
            )


def minus_action_dim(space: spaces.Space) -> float:
    """Returns the usual target entropy of a continuous policy: minus the number of action dimensions."""
    return -float(math.prod(space.shape or (1,)))
