"""A dataset of recorded experience, stored as episodes.

An episode of T steps has T + 1 observations, T actions and T rewards, and is either terminated or truncated. Everything
else is computed from that: successors, n-step returns, returns-to-go, sequences. A table of single transitions in any
order is also a dataset, of episodes of one step.

Shape letters: E episodes, N transitions in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.arrays import mapped
from polyak.envs.make import make_env
from polyak.envs.reading.untrusted import is_plain_id
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrap import as_vec_env
from polyak.experience.batch import ArrayObs
from polyak.experience.datasets import formats
from polyak.experience.datasets.checks import action_space_of, check_numbers, check_spaces, observation_space_of
from polyak.experience.datasets.episodes import DatasetError, Episode, Parts, RecordedData, arrays_of, assemble
from polyak.experience.datasets.formats import own_names
from polyak.experience.datasets.formats.own_names import Columns
from polyak.experience.datasets.formats.source import called, damage_named
from polyak.experience.datasets.model_observations import channels_first, named_space
from polyak.experience.datasets.rings import Buffer, recording_of_ring

CHUNK = 1 << 16
CHUNK_BYTES = 1 << 23
"""Largest number of rows, and of bytes of observations, that are processed at once."""
GymEnv = gym.Env | VecEnv | gym.vector.VectorEnv


class Transitions(NamedTuple):
    """B transitions, which need not belong to one episode."""

    observations: ArrayObs
    """[B, ...]"""
    actions: np.ndarray
    """[B, ...] in the environment's units."""
    rewards: np.ndarray
    """[B]"""
    next_observations: ArrayObs
    """[B, ...] the true successors."""
    terminations: np.ndarray
    """[B] bool: the successor is a terminal state."""
    truncations: np.ndarray
    """[B] bool: the episode was cut short here."""
    columns: Mapping[str, np.ndarray]
    """Name -> [B, ...]"""


class Dataset:
    """Recorded experience.

    Args:
        observations: [N, ...] the observations of the steps; or [N + E, ...], with the final observation of each
            episode after those of its steps. A dict of arrays for a Dict space.
        actions: [N, ...] in the environment's units.
        rewards: [N].
        terminations: [N] bool: this step ended its episode in a terminal state.
        truncations: [N] bool: this step's episode was truncated after it. The last row always ends its episode.
        next_observations: [N, ...] the successors, if ``observations`` does not hold them. Where a successor differs
            from the next row's observation, the episode is truncated: rows in any order become episodes of one step.
            Without it, the step before a truncation has no successor, and is left out with a warning.
        columns: further columns, name -> [N, ...], such as the ``"log_probs"`` of the behaviour policy.
        observation_space, action_space: the spaces of the environment; ``None`` derives them from the data, and the
            range of continuous actions from their smallest and largest.
        env_id: name of the environment, if it is known.

    Attributes:
        observations: [N + E, ...] all observations of each episode, including its final one.
        actions, rewards, columns: as the arguments.
        ends: [E] int64: the number of transitions up to the end of each episode.
        terminated: [E] bool.

    Raises:
        DatasetError: arrays of unequal lengths, numbers that are not finite, or values outside of a space. The message
            names the array and the row.
    """

    def __init__(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminations: Any,
        truncations: Any = None,
        *,
        next_observations: Any = None,
        columns: Mapping[str, Any] | None = None,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        env_id: str | None = None,
    ) -> None:
        given = (observations, actions, rewards, terminations, truncations, next_observations, columns)
        self._take(assemble(*given)._replace(**_known(observation_space, action_space, env_id)))

    @classmethod
    def from_parts(
        cls,
        parts: Parts,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        env_id: str | None = None,
    ) -> Dataset:
        """A dataset of arrays that are laid out as it keeps them; nothing is copied.

        Raises:
            DatasetError: as the constructor.
        """
        return cls.from_recording(RecordedData(parts, observation_space, action_space, env_id))

    @classmethod
    def from_recording(cls, recording: RecordedData) -> Dataset:
        """Makes a dataset of the data that a format's reader returned; nothing is copied.

        Raises:
            DatasetError: as the constructor.
        """
        dataset = cls.__new__(cls)
        dataset._take(recording)
        return dataset

    @classmethod
    def load(
        cls,
        path: Any,
        *,
        format: str | None = None,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        env_id: str | None = None,
        in_memory: bool | None = None,
        trust: bool = False,
        **columns: Columns,
    ) -> Dataset:
        """Read a file, whose format is detected by its content; or a table in memory.

        Args:
            path: ``.npz``, CSV, Parquet, HDF5 of D4RL or d3rlpy, a replay buffer of polyak or Stable-Baselines3, a
                model that was saved with its replay buffer, a folder of LeRobot or Minari, or an id of Minari; or a
                ``DataFrame`` of pandas or polars with a row for each step.
            format: a key of :data:`polyak.experience.datasets.formats.FORMATS`; None detects it.
            observation_space, action_space, env_id: these replace or complete the file's entries.
            in_memory: False leaves the arrays of a file that :meth:`save` wrote as ``.npz`` there, to be read as they
                are needed; True reads them; None reads what takes at most a quarter of the free memory.
            trust: also read a pickle with other content than Stable-Baselines3's buffers. It can run any code: set this
                only for files that you trust.
            columns: the names of a table's columns, if they are unusual: ``observations=["x", "y"]``,
                ``actions=["force"]``, ``rewards="gain"``, ``terminations``, ``truncations``, ``dones``,
                ``next_observations``, ``episodes``, ``steps``. A list is an array, one name a number for each step, and
                a dict of these Dict observations.

        Raises:
            TypeError: another keyword, or neither a path nor a table.
            FileNotFoundError: there is no such file.
            DatasetError: the file is of an unknown format, damaged, claims more than a file of its size can hold (see
                :mod:`polyak.envs.reading.limits`), names other files, or its data cannot be learned from.
            ImportError: a library that the format needs is missing; the message names the extra.
        """
        known: dict[str, Any] = {"observation_space": observation_space, "action_space": action_space}
        own_names.check(columns)
        recording = formats.read(path, format, in_memory=in_memory, trust=trust, columns=columns, **known)
        given = {name: value for name, value in (known | {"env_id": env_id}).items() if value is not None}
        with damage_named(called(path)):
            if not (trust or env_id or is_plain_id(recording.env_id or "")):  # the name of a module would be imported
                raise DatasetError(
                    f"its env_id={recording.env_id!r:.100} is not the id of a registered environment. Pass another, "
                    "env_id=..., or trust=True if you trust the file."
                )
            return cls.from_recording(recording._replace(**given))

    def save(self, path: Any, *, format: str | None = None) -> Path:
        """Write the dataset to a file, which is renamed to its path once it is complete.

        Args:
            path: ends in ``.npz``, ``.csv`` or ``.parquet``; without a suffix ``.npz`` is added. CSV does not keep
                spaces and the environment's name; all others keep everything.
            format: ``"npz"``, ``"csv"``, ``"parquet"`` or ``"minari"``, a folder; None: by the suffix.

        Returns:
            the path of the file.

        Raises:
            DatasetError: the format cannot hold it.
        """
        return formats.write(self.recording, path, format)

    @classmethod
    def from_buffer(cls, buffer: Buffer, decode: Callable[[np.ndarray], Any] | None = None) -> Dataset:
        """Returns the content of a replay buffer, oldest first, one environment after the other.

        Args:
            buffer: such as a :class:`~polyak.experience.ReplayBuffer`. Running episodes are truncated at its newest
                row.
            decode: maps stored actions [B, action_dim] to the environment's units; None: those of a Box are scaled from
                [-1, 1] to its bounds, as the off-policy algorithms store them.

        Raises:
            DatasetError: the buffer is empty, or its content cannot be learned from.
        """
        rows = buffer.contents()
        return cls.from_recording(recording_of_ring(rows, buffer.observation_space, buffer.action_space, decode))

    @classmethod
    def from_model(cls, model: Any) -> Dataset:
        """Returns the content of an off-policy model's replay buffer, in the environment's units.

        Raises:
            DatasetError: the model has no replay buffer, or an empty one.
        """
        buffer = getattr(model, "replay_buffer", None)
        if buffer is None:
            raise DatasetError(
                f"{type(model).__name__} has no replay buffer: collect(env, model) records what it does."
            )
        dataset = cls.from_buffer(buffer, model.policy.codec.to_env)
        scale, shift = getattr(model, "reward_affine", (1.0, 0.0))  # the scaling of rewards by offline algorithms
        rewards = dataset.rewards if (scale, shift) == (1.0, 0.0) else (dataset.rewards - shift) / scale
        return dataset._of(dataset.parts._replace(rewards=rewards))

    def _take(self, recording: RecordedData) -> None:
        check_numbers(recording)
        parts, observation_space, action_space, env_id, _ = recording
        space = observation_space_of(parts) if observation_space is None else named_space(observation_space)
        observations, space = channels_first(parts.observations, space)
        self.parts = parts._replace(observations=observations)
        self.observation_space = space
        self.action_space = action_space_of(parts) if action_space is None else action_space
        self.env_id = env_id
        check_spaces(recording._replace(parts=self.parts), self.observation_space, self.action_space)
        self.observations, self.actions, self.rewards, self.ends, self.terminated, self.columns = self.parts

    @property
    def recording(self) -> RecordedData:
        """The data and spaces, as the writers of formats take them."""
        return RecordedData(self.parts, self.observation_space, self.action_space, self.env_id)

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Transitions, N."""
        return len(self.actions)

    def __repr__(self) -> str:
        name = "" if self.env_id is None else f"{self.env_id}: "
        return (
            f"Dataset({name}{len(self):,} transitions in {self.n_episodes:,} episodes, {self.observation_space} -> "
            f"{self.action_space})"
        )

    @property
    def n_episodes(self) -> int:
        """E."""
        return len(self.ends)

    @cached_property
    def starts(self) -> np.ndarray:
        """[E] int64: the first transition of each episode."""
        return self.parts.starts

    @property
    def lengths(self) -> np.ndarray:
        """[E] int64: steps of each episode."""
        return self.ends - self.starts

    @property
    def returns(self) -> np.ndarray:
        """[E] float64: the sum of rewards of each episode."""
        return np.add.reduceat(self.rewards, self.starts, dtype=np.float64)

    @property
    def episode_numbers(self) -> np.ndarray:
        """[N] int64: which episode each transition belongs to."""
        return np.repeat(np.arange(self.n_episodes), self.lengths)

    @property
    def timesteps(self) -> np.ndarray:
        """[N] int64: steps from the beginning of the episode."""
        return np.arange(len(self)) - np.repeat(self.starts, self.lengths)

    @property
    def terminations(self) -> np.ndarray:
        """[N] bool: the step ended its episode in a terminal state."""
        return self._at_ends(self.terminated)

    @property
    def truncations(self) -> np.ndarray:
        """[N] bool: the step's episode was cut short after it."""
        return self._at_ends(~self.terminated)

    def _at_ends(self, values: np.ndarray) -> np.ndarray:
        flags = np.zeros(len(self), bool)
        flags[self.ends - 1] = values
        return flags

    def returns_to_go(self, gamma: float = 1.0, rewards: np.ndarray | None = None) -> np.ndarray:
        """[N] float64: the sum of rewards from each step to the end of its episode, discounted by ``gamma`` a step.

        Args:
            gamma: in [0, 1].
            rewards: [N] others to sum; ``None``: those of the dataset.
        """
        rewards = np.asarray(self.rewards if rewards is None else rewards, np.float64)
        if gamma == 1.0:
            left = rewards[::-1].cumsum()[::-1]
            return left - np.repeat(np.append(left, 0.0)[self.ends], self.lengths)
        out = np.zeros(len(self))
        for start, end in zip(self.starts, self.ends, strict=True):
            total = 0.0
            for t in range(end - 1, start - 1, -1):
                out[t] = total = rewards[t] + gamma * total
        return out

    # -- reading -------------------------------------------------------------------------------------------------------

    def with_columns(self, columns: Mapping[str, np.ndarray]) -> Dataset:
        """Returns the same experience with further columns, name -> [N, ...]; no array is copied."""
        parts = self.parts._replace(columns={**self.columns, **columns})
        return Dataset.from_parts(parts, self.observation_space, self.action_space, self.env_id)

    def episode(self, number: int) -> Episode:
        """Returns one episode, as views."""
        return self.parts.episode(range(self.n_episodes)[number])

    def episodes(self) -> Iterator[Episode]:
        """Iterates over all episodes in order."""
        return self.parts.episodes()

    def transitions(self, rows: slice | np.ndarray | None = None) -> Transitions:
        """Transitions by their numbers in [0, N); None: all."""
        rows = slice(None) if rows is None else rows
        at = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows) % len(self)
        number = np.searchsorted(self.ends, at, side="right")
        ends = at + 1 == self.ends[number]
        return Transitions(
            mapped(lambda array: array[at + number], self.observations),
            self.actions[at],
            self.rewards[at],
            mapped(lambda array: array[at + number + 1], self.observations),
            ends & self.terminated[number],
            ends & ~self.terminated[number],
            {name: column[at] for name, column in self.columns.items()},
        )

    def chunks(self, size: int | None = None) -> Iterator[Transitions]:
        """Iterates over all transitions in order, ``size`` at a time; None: as many as fit the memory well."""
        if size is None:
            row = sum(array[:1].nbytes for array in arrays_of(self.observations).values())
            size = max(1, min(CHUNK, CHUNK_BYTES // max(row, 1)))
        return (self.transitions(slice(start, start + size)) for start in range(0, len(self), size))

    # -- others made from it -------------------------------------------------------------------------------------------

    def select(self, episodes: Sequence[int] | np.ndarray) -> Dataset:
        """The dataset of some episodes, by their numbers or by flags [E].

        Raises:
            DatasetError: none is selected.
        """
        chosen = np.asarray(episodes)
        numbers = np.arange(self.n_episodes)[chosen] if chosen.size else chosen
        if not len(numbers):
            raise DatasetError("no episode is selected: a dataset needs at least one.")
        steps = np.concatenate([np.arange(self.starts[e], self.ends[e]) for e in numbers])
        seen = np.concatenate([np.arange(self.starts[e] + e, self.ends[e] + e + 1) for e in numbers])
        parts = Parts(
            mapped(lambda array: array[seen], self.observations),
            self.actions[steps],
            self.rewards[steps],
            np.cumsum(self.lengths[numbers]),
            self.terminated[numbers],
            {name: column[steps] for name, column in self.columns.items()},
        )
        return self._of(parts)

    def folds(self, count: int, seed: int = 0) -> Iterator[tuple[Dataset, Dataset]]:
        """Splits the episodes for cross-validation into ``count`` parts, and holds out each part once.

        Episodes are assigned at random; the sizes of the parts differ by one at most.

        Args:
            count: number of parts.
            seed: seed of the random order.

        Yields:
            the training episodes, and the held-out part.

        Raises:
            DatasetError: fewer than two parts, or fewer episodes than parts.
        """
        if not 2 <= count <= self.n_episodes:
            raise DatasetError(
                f"count={count} must be at least 2 and at most the number of episodes, which is {self.n_episodes}."
            )
        part = np.random.default_rng(seed).permutation(self.n_episodes) % count
        for number in range(count):
            yield self.select(part != number), self.select(part == number)

    def __add__(self, other: Dataset) -> Dataset:
        """The episodes of both.

        Raises:
            DatasetError: their spaces or columns differ.
        """
        for what in ("observation_space", "action_space"):
            if getattr(self, what) != getattr(other, what):
                raise DatasetError(
                    f"the datasets differ in {what}: {getattr(self, what)} and {getattr(other, what)}. Give both the "
                    "spaces of the environment, such as by for_env(env)."
                )
        if self.columns.keys() != other.columns.keys():
            raise DatasetError(f"the datasets differ in columns: {sorted(self.columns)} and {sorted(other.columns)}.")
        parts = Parts(
            mapped(lambda *arrays: np.concatenate(arrays), self.observations, other.observations),
            np.concatenate([self.actions, other.actions]),
            np.concatenate([self.rewards, other.rewards]),
            np.concatenate([self.ends, len(self) + other.ends]),
            np.concatenate([self.terminated, other.terminated]),
            {name: np.concatenate([column, other.columns[name]]) for name, column in self.columns.items()},
        )
        return self._of(parts, other.env_id)

    def for_env(self, env: GymEnv | str) -> Dataset:
        """Returns the same data with the spaces of an environment, which may differ from those derived from the data.

        Args:
            env: an environment, a vector of them, or a registered name.

        Raises:
            DatasetError: the data do not fit them.
        """
        made = make_env(env) if isinstance(env, str) else env
        try:
            seen = as_vec_env(made, monitor_wrapper=False)
            spec = getattr(made, "spec", None)
            known = _known(seen.observation_space, seen.action_space, self.env_id or (spec and spec.id))
            return Dataset.from_recording(RecordedData(self.parts, **known))
        finally:
            if made is not env:
                made.close()

    def _of(self, parts: Parts, env_id: str | None = None) -> Dataset:
        return Dataset.from_parts(parts, self.observation_space, self.action_space, self.env_id or env_id)


def _known(observation_space: spaces.Space | None, action_space: spaces.Space | None, env_id: str | None) -> Any:
    return {"observation_space": observation_space, "action_space": action_space, "env_id": env_id}
