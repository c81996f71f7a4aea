"""Refuses data that cannot be learned from, and derives spaces from data that has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed
from polyak.envs.spaces import choice_bounds, clipped
from polyak.experience.datasets.episodes import DatasetError, Parts, RecordedData, arrays_of

CHUNK_BYTES = 1 << 22
"""Bytes of an array that are checked at once: those of a large file are read from disk."""
ROUNDINGS = 2
"""Float32 roundings by which an action may exceed its bounds: those of scaling it and back."""


def chunks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of an array that fit the memory, with the row that each begins in."""
    rows = max(1, CHUNK_BYTES // max(array[:1].nbytes, 1))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


# -- refusing ----------------------------------------------------------------------------------------------------------


def check_numbers(recording: RecordedData) -> None:
    """Refuse arrays with numbers that are not finite, or without numbers.

    Raises:
        DatasetError: there is one; the message names the array, the row and the value.
    """
    parts = recording.parts
    for key, array in arrays_of(parts.observations).items():
        _check_finite(_of(key), array, recording, of_observations=True)
    for name, array in {"actions": parts.actions, "rewards": parts.rewards, **parts.columns}.items():
        _check_finite(name, array, recording)


def check_spaces(recording: RecordedData, observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Refuse actions and choices outside of their space, and observations of another shape.

    Raises:
        DatasetError: naming the array, the row and the value.
    """
    parts = recording.parts
    members: dict[str | None, spaces.Space] = {None: observation_space}
    if isinstance(observation_space, spaces.Dict):
        members = dict(observation_space.spaces.items())
    entries = arrays_of(parts.observations)
    if entries.keys() != members.keys():
        raise DatasetError(
            f"observations has {_keys(entries)}, but the space {_keys(members)}: {observation_space}. Pass the "
            "observation_space that they are of."
        )
    for key, array in entries.items():
        space = members[key]
        _check_shape(_of(key), array, space)
        if not isinstance(space, spaces.Box):
            _check_choices(_of(key), array, space, recording)
    if is_composed(action_space):
        raise DatasetError(f"action_space={action_space} is composed of others: datasets hold no such actions.")
    _check_shape("actions", parts.actions, action_space)
    for start, rows in chunks(parts.actions):
        check_actions(rows, action_space, lambda i, start=start: place(recording, start + i))


def _check_choices(name: str, array: np.ndarray, space: spaces.Space, recording: RecordedData) -> None:
    low, high = _bounds(space)
    for start, rows in chunks(array):
        if (bad := np.argwhere((rows < low) | (rows > high))).size:
            at = int(bad[0][0])
            where = _place_of_observation(recording, start + at)
            raise DatasetError(f"{where}: {name} is {rows[at]}, outside of {space}. Pass the right observation_space.")


def place(recording: RecordedData, row: int) -> str:
    """Describes the place of a transition: its row in the source, and its episode."""
    ends = recording.parts.ends
    number = int(np.searchsorted(ends, row, side="right"))
    step = row - (int(ends[number - 1]) if number else 0)
    source = row if recording.rows is None else recording.rows[row]
    return f"row {source} (episode {number}, step {step})"


def as_actions(chosen: Any, space: spaces.Space, count: int, chooser: str, named: Any = None) -> np.ndarray:
    """Converts a policy's actions for N environments to actions [N, *shape] of the space, in its dtype.

    Numbers that exceed the bounds of a Box by a few roundings are clipped.

    Args:
        chosen: N actions.
        space: the action space.
        count: N.
        chooser: name of the policy, for messages.
        named: see :func:`check_actions`; None: names the chooser and the environment.

    Raises:
        DatasetError: another number of actions, or actions that are not in the space.
    """
    refusal = f"{chooser} chose {chosen!r:.100}, which are not {count} actions of {space}."
    try:
        actions = np.asarray(chosen).reshape(count, *(space.shape or ()))
    except ValueError as error:
        raise DatasetError(refusal) from error
    dtype = np.dtype(space.dtype)
    whole = actions.dtype.kind in "biu" and dtype.kind in "iu"
    if not (whole or np.can_cast(actions.dtype, dtype, "same_kind")):
        raise DatasetError(refusal)
    check_actions(actions, space, named or (lambda i: f"{chooser} for environment {i}"))
    return clipped(actions, space) if isinstance(space, spaces.Box) else actions.astype(space.dtype, copy=False)


def check_actions(actions: np.ndarray, space: spaces.Space, named: Any = "row {}".format) -> None:
    """Refuse actions [B, ...] outside of their space, with a tolerance of a few roundings for numbers.

    Args:
        named: maps the place of an action in [0, B) to its name in messages.

    Raises:
        DatasetError: there is one.
    """
    low, high = _bounds(space)
    slack: Any = 0.0
    if isinstance(space, spaces.Box):
        with np.errstate(over="ignore", invalid="ignore"):
            slack = np.maximum(abs(low), abs(high)) * ROUNDINGS * np.finfo(np.float32).eps
            slack = np.where(np.isfinite(slack), slack, 0.0)
    outside = ~((actions >= low - slack) & (actions <= high + slack))  # NaN counts as outside
    if outside.any():
        at = int(np.argwhere(outside)[0][0])
        raise DatasetError(
            f"{named(at)}: the action {actions[at]} lies outside of {space}. Correct what chose it, pass the right "
            "action_space, or clip the actions as the environment does."
        )


def _bounds(space: spaces.Space) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    if (found := choice_bounds(space)) is not None:
        return found
    raise DatasetError(f"{space} is not supported: use Box, Discrete, MultiDiscrete or MultiBinary.")


def _of(key: str | None) -> str:
    return "observations" if key is None else f"observations[{key!r}]"


def _keys(entries: Any) -> str:
    return "no keys" if None in entries else f"the keys {sorted(entries)}"


def _check_shape(name: str, array: np.ndarray, space: spaces.Space) -> None:
    if array.shape[1:] != tuple(space.shape or ()):
        raise DatasetError(
            f"{name} has rows of shape {array.shape[1:]}, but the space is {space}, whose values have "
            f"{tuple(space.shape or ())}."
        )
    if not isinstance(space, spaces.Box) and array.dtype.kind not in "iub":
        raise DatasetError(f"{name} has the type {array.dtype}, but the space is {space}: it takes whole numbers.")


def _check_finite(name: str, array: np.ndarray, recording: RecordedData, of_observations: bool = False) -> None:
    if array.dtype.kind not in "biuf":
        raise DatasetError(
            f"{name} has the type {array.dtype}, but must hold numbers. Give words numbers: "
            "numpy.unique(words, return_inverse=True)[1]."
        )
    if array.dtype.kind != "f":
        return
    for start, rows in chunks(array):
        finite = np.isfinite(rows)
        if finite.all():
            continue
        at, *entry = np.argwhere(~finite)[0].tolist()
        inside = f" in entry {entry[0] if len(entry) == 1 else tuple(entry)}" if entry else ""
        where = _place_of_observation(recording, start + at) if of_observations else place(recording, start + at)
        raise DatasetError(f"{where}: {name} is {rows[(at, *entry)]}{inside}. Leave out its episode, or mend it.")


def _place_of_observation(recording: RecordedData, index: int) -> str:
    """Describes the place of one of the N + E observations."""
    ends = recording.parts.ends
    number = int(np.searchsorted(ends + np.arange(len(ends)), index, side="left"))
    row = index - number
    return place(recording, row) if row < ends[number] else f"after {place(recording, row - 1)}"


# -- deriving ----------------------------------------------------------------------------------------------------------


def observation_space_of(parts: Parts) -> spaces.Space:
    """The observation space, as far as the data show it: unbounded numbers, images of bytes, choices seen."""
    observed: Any = {key: _space_of(array) for key, array in arrays_of(parts.observations).items()}
    return observed[None] if None in observed else spaces.Dict(observed)


def _space_of(array: np.ndarray) -> spaces.Space:
    if array.dtype.kind not in "biuf":
        raise DatasetError(f"observations has the type {array.dtype}, but must hold numbers.")
    if array.dtype == bool and array.ndim > 1:
        return spaces.MultiBinary(array.shape[1:])
    if array.dtype.kind in "iub" and array.ndim == 1:
        low, high = min(int(array.min()), 0), int(array.max())
        return spaces.Discrete(high - low + 1, start=low)
    if array.dtype == np.uint8 and array.ndim > 2:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    if array.dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype.type)
    return spaces.Box(int(array.min()), int(array.max()), array.shape[1:], array.dtype.type)


def action_space_of(parts: Parts) -> spaces.Space:
    """The action space, as far as the data show it: the range of continuous actions; as many choices as were seen.

    Raises:
        DatasetError: they do not show it.
    """
    actions = parts.actions
    if actions.dtype.kind not in "biuf":
        raise DatasetError(f"actions has the type {actions.dtype}, but must hold numbers.")
    if actions.dtype.kind in "iub":
        most = actions.max(0).astype(np.int64) + 1
        if actions.min() < 0:
            raise DatasetError(f"actions has the choice {actions.min()}, below 0: pass action_space.")
        return spaces.Discrete(int(most)) if actions.ndim == 1 else spaces.MultiDiscrete(most)
    if actions.ndim == 1:
        raise DatasetError(f"actions has shape {actions.shape}: continuous actions must be [N, A], if need be [N, 1].")
    low, high = actions.min(0), actions.max(0)
    if (same := np.flatnonzero((low == high).reshape(-1))).size:
        raise DatasetError(
            f"actions never vary in dimension {same[0]}, so that their range is unknown: pass action_space."
        )
    return spaces.Box(low, high, dtype=actions.dtype.type)
