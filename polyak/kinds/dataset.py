"""Learning from a dataset: instead of an environment, beside it, and before it.

A model that is given a :class:`~polyak.data.Dataset` as its ``env`` learns from that alone, and its time is counted in
gradient steps. Given an environment later (:meth:`LearnsFromData.set_env`), the same model goes on acting: from then on
minibatches come from both, and time is counted in environment steps.
"""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from polyak.callbacks.callback import BaseCallback, EvalCallback, MaybeCallback
from polyak.checkpoint.saved import Saved
from polyak.data import Dataset, InsufficientMemoryError, ReplayBuffer, Transition, TransitionRows
from polyak.data.base import Normalizer
from polyak.hyperparameters.declaration import require
from polyak.kinds.collecting_algorithm import Collecting
from polyak.kinds.env_algorithm import GymEnv, SpaceError
from polyak.schedules import is_constant

CHUNK = 500
"""Gradient steps between two looks at the clock, where no callback asks for more."""
Batches = Iterator[tuple[Transition | TransitionRows, Tensor | None]]
"""Minibatches, with the indices of their rows where these have priorities."""


class LearnsFromData(Collecting):
    """What an off-policy algorithm does with a dataset."""

    # Not annotated: not a hyper-parameter.
    dataset = cast("Dataset | None", None)
    """What it learns from besides its own experience."""
    data_buffer = cast("ReplayBuffer | None", None)
    """The dataset as it is replayed."""
    replay_buffer: ReplayBuffer | None

    # -- construction --------------------------------------------------------------------------------------------------

    def _take_up(self, env: Any) -> None:
        if not isinstance(env, Dataset):
            return super()._take_up(env)
        self._check_action_space(env.action_space)
        self.dataset = env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def _card(self) -> dict[str, str]:
        return {**super()._card(), **({} if self.dataset is None else {"dataset": repr(self.dataset)})}

    @property
    def _acts(self) -> bool:
        return self.dataset is None or self.env is not None

    @property
    def learns_offline(self) -> bool:
        """Whether it has a dataset and no environment."""
        return not self._acts

    def set_dataset(self, dataset: Dataset) -> None:
        """Learn from these transitions, too: those of its own experience are replayed beside them.

        Args:
            dataset: of the model's spaces: see :meth:`~polyak.data.Dataset.for_env`.

        Raises:
            ValueError: it has others.
        """
        for what in ("observation_space", "action_space"):
            if getattr(dataset, what) != getattr(self, what):
                raise SpaceError(
                    f"dataset has {what}={getattr(dataset, what)}, but the model has {getattr(self, what)}. Use "
                    "dataset.for_env(env) with the model's environment."
                )
        self.dataset = dataset
        self._check_mixture()
        self._replay_dataset()

    def _check_mixture(self) -> None:
        """Refuse priorities where minibatches come from two buffers: neither knows how the other's rows compare."""
        prioritized = getattr(self, "prioritized", False)
        if self.dataset is not None and self.env is not None:
            fix = "a model that learns from a dataset and by acting draws uniformly. Use prioritized=False."
            require(not prioritized, "prioritized", prioritized, fix)

    def _replay_dataset(self) -> None:
        """Fill a buffer with what the dataset holds: in memory, or in a temporary file where it does not fit."""
        assert self.dataset is not None
        try:
            self.data_buffer = self._make_buffer(len(self.dataset), n_envs=1)
        except InsufficientMemoryError:
            self.data_buffer = self._make_buffer(len(self.dataset), n_envs=1, storage_device="disk")
        memory = self.policy.initial_memory(1) or ()  # which nobody recorded: sequences begin with none
        self.data_buffer.fill(self.dataset, self.policy.codec.from_env, self._reward_of_data, blank=tuple(memory))

    def _make_buffer(self, size: int, n_envs: int, **options: Any) -> ReplayBuffer:
        """A replay buffer as the hyper-parameters describe it, but for some options."""
        raise NotImplementedError

    def _reward_of_data(self, rewards: np.ndarray) -> np.ndarray:
        """What is learned from instead of rewards [B], of the dataset and of environments alike."""
        return rewards

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        if self.env is None and self.dataset is not None:
            env = self._vectorised(env)
            self.n_envs = env.num_envs
        super().set_env(env, force_reset)
        self._check_mixture()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _learn_from_data(self, callback: BaseCallback, batch_size: int, log_interval: int | None) -> bool:
        """Some gradient steps on the dataset alone. False: a callback asked to stop."""
        begun, idle = self.num_timesteps, callback.is_idle
        steady = all(is_constant(getattr(self, name, None)) for name in ("learning_rate", *self.learner.dials))
        steps = min(CHUNK - begun % CHUNK, self._total_timesteps - begun) if idle and steady else 1
        with self._split.update:
            self.train(steps, batch_size)
        self.num_timesteps += steps
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        if not (idle or callback.on_step()):
            return False
        if (
            log_interval is not None
            and self.num_timesteps // CHUNK % log_interval == 0
            and self.num_timesteps % CHUNK == 0
        ):
            self.dump_logs()
        return True

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """Sample minibatches and learn from them."""
        raise NotImplementedError

    def _batches(self, batch_size: int, gamma: float, steps: int, share: float | None) -> Batches:
        """Minibatches from its own experience, the dataset, or both.

        Args:
            batch_size: rows of each.
            gamma: discount of one step.
            steps: how many.
            share: of rows that come from the dataset where there is both; ``None``: as if all were in one buffer.
        """
        own, data, normalizer = self.replay_buffer, self.data_buffer, self._vec_normalize_env
        filled = 0 if own is None or not own.can_sample() else own.size() * own.n_envs
        if data is None or (share == 0 and filled):
            assert own is not None
            return own.transitions(batch_size, gamma, normalizer, steps, late=self._gathers_late)
        if not filled or share == 1:
            return data.transitions(batch_size, gamma, normalizer, steps, late=self._gathers_late)
        assert own is not None
        if share is None:
            share = data.size() / (data.size() + filled)
        return mixed(own, data, share, batch_size, gamma, normalizer, steps)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _enter(self, saved: Saved, env: Any) -> None:
        super()._enter(saved, None if isinstance(env, Dataset) else env)
        if isinstance(env, Dataset):
            for what in ("observation_space", "action_space"):
                if getattr(env, what) != getattr(self, what):
                    raise SpaceError(f"the dataset has {what}={getattr(env, what)}, the model {getattr(self, what)}.")
            self.dataset = env


def mixed(
    own: ReplayBuffer,
    data: ReplayBuffer,
    share: float,
    batch_size: int,
    gamma: float,
    normalizer: Normalizer | None,
    steps: int,
) -> Batches:
    """Minibatches whose rows come from ``data`` with probability ``share`` each, else from ``own``; a share of which a
    minibatch has whole rows is kept exactly (RLPD, arXiv:2302.02948, has a half)."""
    for _ in range(steps):
        rows = share * batch_size
        recorded = int(rows) if rows == int(rows) else int(data.rng.binomial(batch_size, share))
        parts = [
            next(iter(buffer.transitions(count, gamma, normalizer)))[0]
            for buffer, count in ((own, batch_size - recorded), (data, recorded))
            if count
        ]
        yield _joined(parts), None


def _joined(parts: list[Any]) -> Transition:
    """One minibatch of several."""
    return parts[0] if len(parts) == 1 else Transition(*(_cat(columns) for columns in zip(*parts, strict=True)))


def _cat(columns: tuple[Any, ...]) -> Any:
    first = columns[0]
    if isinstance(first, dict):
        return {key: _cat(tuple(column[key] for column in columns)) for key in first}
    return None if first is None else torch.cat(columns)


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
