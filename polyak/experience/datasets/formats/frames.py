"""Datasets as tables with a row for each step, and back.

Columns: ``episode``, ``step``, ``obs_0`` ..., ``action_0`` ..., ``reward``, ``next_obs_0`` ..., ``terminated``,
``truncated``, and those of the dataset. An array with one number for each step is one column, ``action``; of an array
with more dimensions the place of a number is given by all its indices, ``obs_0_1``. Dict observations have their key
between colons, ``obs:left:0``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from polyak.experience.datasets.episodes import DatasetError, RecordedData, arrays_of
from polyak.experience.datasets.formats.own_names import renamed
from polyak.experience.datasets.formats.source import Source, pandas
from polyak.experience.datasets.named import MEANING, recording_of, successors

_INDEXED = re.compile(r"(.+?)[_:]([0-9]{1,9}(?:_[0-9]{1,9})*)")
_MANY = 4096
"""Columns that an array may become: tables are not for images."""


def frame_of(recording: RecordedData) -> Any:
    """A pandas.DataFrame with a row for each transition."""
    parts = recording.parts
    lengths = np.diff(parts.ends, prepend=0)
    ends = parts.ends - 1
    terminated, truncated = np.zeros(len(parts.actions), bool), np.zeros(len(parts.actions), bool)
    terminated[ends], truncated[ends] = parts.terminated, ~parts.terminated
    now, then = successors(parts)
    columns: dict[str, np.ndarray] = {
        "episode": np.repeat(np.arange(len(ends)), lengths),
        "step": np.arange(len(parts.actions)) - np.repeat(parts.starts, lengths),
        **dict(_spread("obs", now)),
        **dict(_spread("action", parts.actions)),
        "reward": parts.rewards,
        **dict(_spread("next_obs", then)),
        "terminated": terminated,
        "truncated": truncated,
    }
    for name, array in parts.columns.items():
        for column, values in _spread(name, array):
            if column in columns or (column == name and _INDEXED.fullmatch(name)):
                raise DatasetError(f"the column {name!r} would be that of others in a table: rename it.")
            columns[column] = values
    return pandas().DataFrame(columns)


def _spread(name: str, values: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The columns of an array, or of a dict of arrays."""
    for key, array in arrays_of(values).items():
        if key is not None and (":" in key or (_INDEXED.fullmatch(key) and array.ndim == 1)):
            raise DatasetError(f"observations[{key!r}] would be that of others in a table: rename the key.")
        base, mark = (name, "_") if key is None else (f"{name}:{key}", ":")
        if array.ndim == 1:
            yield base, array
            continue
        if (many := int(np.prod(array.shape[1:]))) > _MANY:
            raise DatasetError(f"{base} would be {many:,} columns, more than the {_MANY:,} of a table: save as .npz.")
        for place in np.ndindex(array.shape[1:]):
            yield base + mark + "_".join(map(str, place)), array[(slice(None), *place)]


def recording_of_frame(source: Source) -> RecordedData:
    """A DataFrame of pandas or polars with a row for each step."""
    frame, names = source.given, list(source.given.columns)
    if len(set(names)) < len(names):
        raise DatasetError(f"{source} has two columns of one name.")
    return recording_of_columns({name: _array(frame[name].to_numpy()) for name in names}, source)


def _array(column: np.ndarray) -> np.ndarray:
    """Objects that are numbers, or arrays of numbers of one shape, as one array."""
    if column.dtype != object:
        return column
    try:
        stacked = np.array(column.tolist())
    except ValueError:  # of several shapes
        return column
    return stacked if stacked.dtype.kind in "biuf" else column


def recording_of_columns(columns: Mapping[Any, np.ndarray], source: Source) -> RecordedData:
    """Converts a table with a row for each step, whose columns have names of
    :data:`~polyak.experience.datasets.named.NAMES`, or names that ``source`` maps.

    Args:
        columns: name -> [rows], all of equal length.
        source: the origin of the table.

    Raises:
        DatasetError: the table is empty or has other columns, or the data cannot be learned from.
    """
    if not len(next(iter(columns.values()), ())):
        raise DatasetError(f"{source} has no rows.")
    names = renamed(columns, source.columns, str(source))
    arrays = _nested({names[name]: column for name, column in columns.items()}, str(source))
    for name, column in columns.items():
        _check_numbers(name, column, _meaning(names[name]), str(source))
    return recording_of(arrays, str(source))


def _meaning(name: str) -> str | None:
    """Returns the meaning of a column by its usual name."""
    match = _INDEXED.fullmatch(name)
    return MEANING.get((name if match is None else match.group(1)).partition(":")[0].lower())


def _check_numbers(name: Any, column: np.ndarray, meaning: str | None, source: str) -> None:
    """Refuse words where numbers are read; episodes may have names."""
    if column.dtype.kind in "biuf" or meaning in (None, "episodes"):
        return
    others = ((row, value) for row, value in enumerate(column) if not isinstance(value, Real))
    row, value = next(others, (0, column[0]))
    fix = "Leave out its episode, or mend it."
    if isinstance(value, str):
        fix = (
            f"Give each word a number, such as table[{name!r}] = table[{name!r}].astype('category').cat.codes in "
            "pandas, or leave the column out."
        )
    raise DatasetError(f"{source}: row {row}: the column {name!r} is {value!r}, but {meaning} must be numbers. {fix}")


def _nested(columns: Mapping[str, np.ndarray], source: str) -> dict[str, Any]:
    """Groups columns into arrays by name, and into dicts of arrays where names have a key."""
    nested: dict[str, Any] = {}
    for name, array in _gathered(columns, source).items():
        base, _, key = name.partition(":")
        if not key:
            nested[name] = array
        elif isinstance(entries := nested.setdefault(base, {}), dict):
            entries[key] = array
        else:
            raise DatasetError(f"{source} has a column {base!r} and one {name!r}: rename one.")
    return nested


def _gathered(columns: Mapping[str, np.ndarray], source: str) -> dict[str, np.ndarray]:
    """Columns ``x_0``, ``x_1`` ... as one array x [N, 2]."""
    places: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        match = _INDEXED.fullmatch(name)
        if match is None:
            arrays[name] = values
        else:
            place = tuple(map(int, match.group(2).split("_")))
            places.setdefault(match.group(1), {})[place] = values
    for name, found in places.items():
        if name in arrays:
            raise DatasetError(f"{source} has a column {name!r} and columns {name}_0 ...: rename one.")
        shape = _shape(name, found.keys(), source)
        flat = np.stack([found[place] for place in sorted(found)], axis=-1)
        arrays[name] = flat.reshape(len(flat), *shape)
    return arrays


def _shape(name: str, places: Set[tuple[int, ...]], source: str) -> tuple[int, ...]:
    """Returns the shape of the array that has these places, after checking that none is missing."""
    if len({len(place) for place in places}) > 1:
        raise DatasetError(f"{source} has columns {name}_* with different numbers of indices: rename some.")
    shape = tuple(max(lengths) + 1 for lengths in zip(*places, strict=True))
    if math.prod(shape) != len(places):
        missing = next(place for place in map(partial(_place, shape), range(len(places) + 1)) if place not in places)
        raise DatasetError(f"{source} has columns {name}_* up to {max(places)}, but none of {missing}.")
    return shape


def _place(shape: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The indices of the entry of that number, in an array of any size."""
    place: list[int] = []
    for length in reversed(shape):
        number, index = divmod(number, length)
        place.append(index)
    return tuple(reversed(place))
