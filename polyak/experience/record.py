"""The record of experience: named columns that share their leading dimensions.

Names in use:

    observations, actions, rewards, next_observations   [T, N, ...]   the successor is the true one, also where the
                                                                      environment has begun another episode
    terminated, truncated                               [T, N] bool   never mixed into one flag
    discounts, weights, valid                           [B] or [B, L] added by sampling

Further columns are declared by a :class:`~polyak.experience.schema.Schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from polyak import arrays
from polyak.arrays import Array, Column, Device


class Experience(Mapping[str, Column]):
    """Columns by name over [T, N, ...] or [B, ...]; also as attributes: ``experience.rewards``.

    Args:
        columns: name -> numpy array, or tensor, or a dict of these; all in numpy or all on one device.
    """

    __slots__ = ("columns",)

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)

    def __getattr__(self, name: str) -> Column:
        try:
            return object.__getattribute__(self, "columns")[name]
        except KeyError:
            raise AttributeError(f"There is no column {name!r}: this experience has {sorted(self.columns)}.") from None

    def __getitem__(self, key: Any) -> Any:
        """A column by its name; the rows of all columns by anything else that indexes leading dimensions."""
        return self.columns[key] if isinstance(key, str) else self.map(lambda array: array[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return Experience, (self.columns,)

    def __repr__(self) -> str:
        shapes = {name: arrays.mapped(lambda array: tuple(array.shape), column) for name, column in self.items()}
        return f"Experience({shapes}, {self.device or 'numpy'})"

    @property
    def lead(self) -> tuple[int, ...]:
        """[T, N], [B, L] or [B]: the shape of ``rewards``."""
        return tuple(self.columns["rewards"].shape)

    @property
    def device(self) -> Device:
        """The device of the columns; ``None``: numpy."""
        return arrays.device_of(arrays.first(self.columns))

    @property
    def ended(self) -> Array:
        """[T, N] bool: an episode ended with this row, for whichever reason."""
        return self.columns["terminated"] | self.columns["truncated"]

    def layout(self) -> np.dtype:
        """The numpy type of a row: a record with a field for each column, from which a :class:`Ring` can be made."""
        return _layout(self.columns, len(self.lead))

    def map(self, function: Callable[[Array], Array]) -> Experience:
        """A function of arrays applied to every column."""
        return Experience(arrays.mapped(function, self.columns))

    def plus(self, **columns: Column) -> Experience:
        """Returns the experience with further columns, which replace those of the same names."""
        return Experience({**self.columns, **columns})

    def to(self, device: torch.device | str | None) -> Experience:
        """Returns the experience in numpy (``None``) or on a torch device; itself if it is there already."""
        target = None if device is None else torch.device(device)
        here = self.device
        if here == target:
            return self
        if here is not None and target is not None and here.type == target.type and target.index is None:
            return self  # "cuda" is wherever the columns are
        return self.map(lambda array: arrays.place(array, target))

    def flat(self) -> Experience:
        """[T, N, ...] as [T * N, ...]; views of contiguous columns."""
        n = len(self.lead)
        return self.map(lambda array: array.reshape(-1, *array.shape[n:]))

    @staticmethod
    def joined(parts: Sequence[Experience], axis: int) -> Experience:
        """Several concatenated along time (0) or environments (1); a single one as it is."""
        if len(parts) == 1:
            return parts[0]
        columns = arrays.mapped(lambda *several: arrays.joined(several, axis), *(part.columns for part in parts))
        return Experience(columns)


def record_dtype(fields: Mapping[str, np.dtype]) -> np.dtype:
    """An aligned record; wide elements first, so that little is lost to padding."""
    names = sorted(fields, key=lambda name: -fields[name].alignment)
    return np.dtype({"names": names, "formats": [fields[name] for name in names]}, align=True)


def _layout(column: Column, lead: int) -> np.dtype:
    if isinstance(column, Mapping):
        return record_dtype({name: _layout(part, lead) for name, part in column.items()})
    kind = column.dtype if isinstance(column, np.ndarray) else arrays.numpy_dtype(column.dtype)
    return np.dtype((kind, tuple(column.shape[lead:])))


def _flatten(experience: Experience) -> tuple[list[Column], list[str]]:
    return list(experience.columns.values()), list(experience.columns)


def _unflatten(columns: Any, names: Any) -> Experience:
    return Experience(dict(zip(names, columns, strict=True)))


pytree.register_pytree_node(Experience, _flatten, _unflatten, serialized_type_name="polyak.experience.Experience")
