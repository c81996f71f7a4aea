"""Extra columns of experience besides observations, actions, rewards and ends, declared once.

An algorithm or a policy that needs more than the built-in columns (the state of a recurrent policy, masks of legal
actions, visit counts of a search, log-probabilities of the behaviour, returns-to-go) declares each as a
:class:`Column`. The runner then provides it in ``Step.extras``, buffers store it, and batches have it in ``extras``, by
the same name everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import numpy_dtype

BUILT_IN = frozenset(
    {"observations", "actions", "env_actions", "rewards", "next_observations", "terminated", "truncated", "dones"}
    | {"infos", "new_obs", "episode_starts", "ended", "extras"}
    | {"timeouts", "discounts", "cuts", "valid", "weights", "indices"}
)
"""Names of the built-in columns of steps and batches."""


@dataclass(frozen=True)
class Column:
    """One extra column of experience.

    Args:
        name: an identifier, such as ``"action_mask"``.
        dtype: a numpy dtype, or its name, of numbers or flags that tensors can hold.
        shape: shape of one row, without steps or environments; ``()`` is one number.

    Raises:
        ValueError: an argument is not valid, or the name is that of a built-in column.
    """

    name: str
    dtype: Any
    shape: tuple[int, ...] = ()
    layout: np.dtype = field(init=False, repr=False, compare=False)
    """The numpy type of a row, with its shape."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"A column's name must be an identifier such as 'action_mask', got {self.name!r}.")
        if self.name in BUILT_IN:
            raise ValueError(f"The column {self.name!r} exists already in every step: choose another name.")
        try:
            dtype = np.dtype(self.dtype)
            torch.from_numpy(np.empty(0, dtype))
        except TypeError as error:
            raise ValueError(
                f"The column {self.name!r} has dtype={self.dtype!r}, which tensors cannot hold: use a type such as "
                "np.float32, np.int64 or np.bool_."
            ) from error
        sizes = self.shape if isinstance(self.shape, tuple | list) else None
        if sizes is None or not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
            raise ValueError(
                f"The column {self.name!r} has shape={self.shape!r}: it must be a tuple of positive integers, () for "
                "one number per row."
            )
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", tuple(map(int, sizes)))
        object.__setattr__(self, "layout", np.dtype((dtype, self.shape)))

    @classmethod
    def of_space(cls, name: str, space: spaces.Space) -> Column:
        """The column that holds the values of a Box, Discrete, MultiDiscrete or MultiBinary space."""
        if space.shape is None or space.dtype is None:
            raise ValueError(
                f"The column {name!r} cannot hold values of {space}: declare a column for each part of it."
            )
        return cls(name, space.dtype, space.shape)


class Schema:
    """The columns of experience besides the built-in ones, in order.

    Args:
        columns: in the order in which batches list them.

    Raises:
        TypeError: something is not a :class:`Column`.
        ValueError: two columns have the same name.
    """

    def __init__(self, columns: Iterable[Column] = ()) -> None:
        self.columns = tuple(columns)
        names: set[str] = set()
        for column in self.columns:
            if not isinstance(column, Column):
                raise TypeError(f"columns must be Column objects, got {column!r}: write Column(name, dtype, shape).")
            if column.name in names:
                raise ValueError(f"There are two columns {column.name!r}: give one of them another name.")
            names.add(column.name)

    @classmethod
    def of(cls, columns: Schema | Iterable[Column] | None) -> Schema:
        """A schema as it is; some columns, or None, as one."""
        return columns if isinstance(columns, Schema) else cls(() if columns is None else columns)

    @classmethod
    def from_spaces(cls, columns: Mapping[str, spaces.Space]) -> Schema:
        """Name -> space of its values; see :meth:`Column.of_space`."""
        return cls(Column.of_space(name, space) for name, space in columns.items())

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return any(column.name == name for column in self.columns)

    def __add__(self, more: Schema | Iterable[Column]) -> Schema:
        return Schema((*self.columns, *more))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.columns == other.columns

    def __hash__(self) -> int:
        return hash(self.columns)

    def __repr__(self) -> str:
        return f"Schema({list(self.columns)})"

    def layouts(self) -> dict[str, np.dtype]:
        """Name -> numpy type of a row."""
        return {column.name: column.layout for column in self.columns}

    def checked(self, extras: Mapping[str, Any] | None, envs: int) -> dict[str, Any]:
        """The values of one step as arrays or tensors [envs, *shape], in the order of the columns.

        Raises:
            ValueError: a column is missing, is not declared, or has another shape or type; names it.
        """
        given = {} if extras is None else extras
        if unknown := [name for name in given if name not in self]:
            raise ValueError(f"extras brings {unknown}, which no column was declared for: pass columns=[Column(...)].")
        return {column.name: _checked(column, given, envs) for column in self.columns}


def _checked(column: Column, extras: Mapping[str, Any], envs: int) -> Any:
    name, shape = column.name, (envs, *column.shape)
    if name not in extras:
        raise ValueError(f"extras lacks the column {name!r}: every step must bring it, as an array of shape {shape}.")
    value = extras[name]
    array = value if isinstance(value, Tensor) else np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"extras[{name!r}] must have shape {shape} (n_envs first), got {tuple(array.shape)}.")
    dtype = numpy_dtype(array.dtype) if isinstance(array, Tensor) else array.dtype
    if dtype != column.dtype and not np.can_cast(dtype, column.dtype, "same_kind"):
        raise ValueError(f"extras[{name!r}] must be of dtype {column.dtype}, got {dtype}: convert it.")
    return array
