"""The parts of datasets, and the conversion of flat arrays to episodes.

Shape letters: E episodes, N transitions in all of them, T steps of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from polyak.arrays import mapped
from polyak.envs.nested_spaces import by_name
from polyak.experience.batch import ArrayObs
from polyak.warning import warn_user


class DatasetError(ValueError):
    """Data that cannot be learned from: the message names the array and the row."""


class Episode(NamedTuple):
    """One episode of T steps: views of the dataset."""

    observations: ArrayObs
    """[T + 1, ...]"""
    actions: np.ndarray
    """[T, ...] in the environment's units."""
    rewards: np.ndarray
    """[T]"""
    terminated: bool
    """Whether it ended in a terminal state; otherwise it was truncated, by a time limit or by the end of the
    recording."""
    columns: Mapping[str, np.ndarray]
    """Name -> [T, ...]"""


class Parts(NamedTuple):
    """Episodes one after the other."""

    observations: ArrayObs
    """[N + E, ...] those of each episode, its last one included."""
    actions: np.ndarray
    """[N, ...] in the environment's units."""
    rewards: np.ndarray
    """[N]"""
    ends: np.ndarray
    """[E] int64: how many transitions there are up to the end of each episode."""
    terminated: np.ndarray
    """[E] bool: it ended in a terminal state; otherwise it was cut short."""
    columns: Mapping[str, np.ndarray]
    """Name -> [N, ...]"""

    @property
    def starts(self) -> np.ndarray:
        """[E] int64: the first transition of each episode."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])

    def episode(self, number: int) -> Episode:
        """Returns one episode, as views."""
        start, end = int(self.ends[number - 1]) if number else 0, int(self.ends[number])
        return Episode(
            mapped(lambda array: array[start + number : end + number + 1], self.observations),
            self.actions[start:end],
            self.rewards[start:end],
            bool(self.terminated[number]),
            {name: column[start:end] for name, column in self.columns.items()},
        )

    def episodes(self) -> Iterator[Episode]:
        """Iterates over all episodes in order."""
        return map(self.episode, range(len(self.ends)))


class RecordedData(NamedTuple):
    """The output of a format's reader: the recorded data, and the spaces and names in the file."""

    parts: Parts
    observation_space: spaces.Space | None = None
    """None: derived from the data; likewise ``action_space``."""
    action_space: spaces.Space | None = None
    env_id: str | None = None
    rows: np.ndarray | None = None
    """[N] the source's numbers of the transitions, for messages; None: they are as in ``parts``."""


def arrays_of(observations: ArrayObs) -> dict[str | None, np.ndarray]:
    """Key -> array; the key of observations that are one array is None."""
    found: Any = observations if isinstance(observations, dict) else {None: observations}
    return dict(found)


def count(observations: ArrayObs) -> int:
    """Returns the number of observations."""
    return min((len(array) for array in arrays_of(observations).values()), default=0)


def assemble(
    observations: Any,
    actions: Any,
    rewards: Any,
    terminations: Any,
    truncations: Any = None,
    next_observations: Any = None,
    columns: Mapping[str, Any] | None = None,
) -> RecordedData:
    """Flat arrays as episodes; see :class:`~polyak.experience.datasets.dataset.Dataset` for the arguments.

    Raises:
        DatasetError: arrays of unequal lengths, or flags that contradict each other.
    """
    observations, actions = _named(observations), np.asanyarray(actions)
    rewards = _column("rewards", rewards)
    terminations = flags("terminations", terminations)
    truncations = np.zeros(len(rewards), bool) if truncations is None else flags("truncations", truncations)
    extra = {name: np.asanyarray(column) for name, column in (columns or {}).items()}
    steps = {"actions": actions, "rewards": rewards, "terminations": terminations, "truncations": truncations, **extra}
    _check_lengths(steps, len(actions))
    if not len(actions):
        raise DatasetError("The dataset is empty: actions has 0 rows.")
    if (both := np.flatnonzero(terminations & truncations)).size:
        raise DatasetError(
            f"row {both[0]}: terminations and truncations are both true. A terminal state is not cut short: set "
            "truncations to False there."
        )
    if next_observations is not None:
        next_observations = _named(next_observations)
        return RecordedData(
            _from_pairs(observations, next_observations, actions, rewards, terminations, truncations, extra)
        )
    ended = terminations | truncations
    ended[-1] = True
    ends = np.flatnonzero(ended) + 1
    if count(observations) == len(actions) + len(ends):
        _check_observations(observations, len(actions) + len(ends))
        return RecordedData(Parts(observations, actions, rewards, ends, terminations[ends - 1], extra))
    _check_observations(observations, len(actions))
    return _without_successors(observations, actions, rewards, ends, terminations, extra)


def _from_pairs(
    observations: ArrayObs,
    successors: ArrayObs,
    actions: np.ndarray,
    rewards: np.ndarray,
    terminations: np.ndarray,
    truncations: np.ndarray,
    columns: Mapping[str, np.ndarray],
) -> Parts:
    """Builds episodes of observations and successors [N, ...] each: an episode ends where the next row does not
    continue it."""
    n = len(actions)
    _check_observations(observations, n)
    here, there = ({key: a.shape for key, a in arrays_of(obs).items()} for obs in (observations, successors))
    if here != there:
        raise DatasetError(f"next_observations has shape {_plain(there)}, but observations {_plain(here)}.")
    follows = np.ones(n - 1, bool)
    for key, now in arrays_of(observations).items():
        follows &= _same(arrays_of(successors)[key][:-1], now[1:])
    ended = terminations | truncations
    ended[:-1] |= ~follows
    ended[-1] = True
    ends = np.flatnonzero(ended) + 1

    def woven(now: np.ndarray, then: np.ndarray) -> np.ndarray:
        return np.insert(now, ends, then[ends - 1], axis=0)

    return Parts(mapped(woven, observations, successors), actions, rewards, ends, terminations[ends - 1], columns)


def _without_successors(
    observations: ArrayObs,
    actions: np.ndarray,
    rewards: np.ndarray,
    ends: np.ndarray,
    terminations: np.ndarray,
    columns: Mapping[str, np.ndarray],
) -> RecordedData:
    """Builds episodes of observations [N, ...] without successors: the last observation of a truncated episode becomes
    its final one, and its own step is lost. The successor of a terminated episode is never read, so its last
    observation serves as the successor."""
    terminated = terminations[ends - 1]
    lengths = np.diff(ends, prepend=0)
    cut = ~terminated
    if (single := np.flatnonzero(lengths == cut)).size:
        raise DatasetError(
            f"row {ends[single[0]] - 1}: an episode of one step that was cut short, without the observation that "
            "followed. Pass next_observations, or observations with the last one of each episode."
        )
    lost = ends[cut] - 1
    if lost.size:
        warn_user(
            f"{lost.size} steps that an episode was cut short after are left out, the first in row {lost[0]}: the "
            "observations that followed are not there. Pass next_observations, or observations with the last one of "
            "each episode, to keep them.",
        )
    kept = np.ones(len(actions), bool)
    kept[lost] = False
    again = ends[terminated] - 1  # in place of the terminal observation, which is never read

    def with_last(now: np.ndarray) -> np.ndarray:
        return np.insert(now, again + 1, now[again], axis=0)

    parts = Parts(
        mapped(with_last, observations),
        actions[kept],
        rewards[kept],
        np.cumsum(lengths - cut),
        terminated,
        {name: column[kept] for name, column in columns.items()},
    )
    return RecordedData(parts, rows=np.flatnonzero(kept))


def _named(observations: Any) -> ArrayObs:
    """An array, or the arrays of all parts of composed observations, by the names of these."""
    if isinstance(observations, Mapping | tuple):
        return {name: np.asanyarray(array) for name, array in by_name(observations).items()}
    return np.asanyarray(observations)


def _plain(shapes: dict[str | None, Any]) -> Any:
    return shapes.get(None, shapes)


def _same(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[N] whether rows are equal, bit by bit but for the sign of zeros."""
    return (first == second).reshape(len(first), -1).all(1)


def _column(name: str, values: Any) -> np.ndarray:
    """[N] or [N, 1] as [N]."""
    array = np.asanyarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DatasetError(f"{name} has shape {array.shape}: it must hold one number for each step, [N].")
    return array


def flags(name: str, values: Any) -> np.ndarray:
    """[N] or [N, 1] of true and false, or of 1 and 0, as [N] bool.

    Raises:
        DatasetError: they are not.
    """
    array = _column(name, values)
    if array.dtype.kind not in "biuf":
        raise DatasetError(f"{name} has the type {array.dtype}: it must hold one flag for each step.")
    if array.dtype != bool and (wrong := np.flatnonzero((array != 0) & (array != 1))).size:
        raise DatasetError(f"row {wrong[0]}: {name} is {array[wrong[0]]}, but must be true or false.")
    return array.astype(bool)


def _check_lengths(steps: Mapping[str, np.ndarray], expected: int) -> None:
    for name, array in steps.items():
        if len(array) != expected:
            raise DatasetError(
                f"{name} has {len(array)} rows, but actions {expected}: rows from {min(len(array), expected)} on have "
                "no counterpart."
            )


def _check_observations(observations: ArrayObs, expected: int) -> None:
    for key, array in arrays_of(observations).items():
        if len(array) != expected:
            name = "observations" if key is None else f"observations[{key!r}]"
            raise DatasetError(
                f"{name} has {len(array)} rows, but there are {expected} steps. It must have one for each step, or one "
                "more for each episode."
            )
