"""Rows of mixed types in one block of memory, so that a random batch is one gather.

A transition is one record of a numpy structured dtype; a field of the table is a strided view with the usual
``[steps, envs, ...]`` shape. Memory is zeroed lazily by the operating system: an unused row costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import numpy as np
import torch
from gymnasium import spaces

ArrayObs = Union[np.ndarray, "dict[str, np.ndarray]"]
"""A batch of observations: one array [B, ...], or one per key of a Dict space."""

LARGE_ROW = 8192  # bytes; above it torch's gather (threaded) beats numpy's


def observation_dtype(space: spaces.Space, shape: Any) -> np.dtype:
    """The dtype of one stored observation: a subarray, or for a Dict space a record of subarrays."""
    if isinstance(space, spaces.Dict):
        return record_dtype({key: observation_dtype(sub, shape[key]) for key, sub in space.spaces.items()})
    return np.dtype((space.dtype, shape))


def record_dtype(fields: Mapping[str, np.dtype]) -> np.dtype:
    """An aligned record; wide elements first, so that little is lost to padding."""
    names = sorted(fields, key=lambda name: -fields[name].alignment)
    return np.dtype({"names": names, "formats": [fields[name] for name in names]}, align=True)


def unpack(field: np.ndarray) -> ArrayObs:
    """A field of records as a dict of arrays; any other array as it is. Views, nothing is copied."""
    names = field.dtype.names
    return field if names is None else {name: field[name] for name in names}


def assign(target: ArrayObs, index: Any, value: Any) -> None:
    """``target[index] = value``, key by key for Dict observations."""
    if isinstance(target, dict):
        for key, array in target.items():
            array[index] = value[key]
    else:
        target[index] = value


class Table:
    """``steps * envs`` records. A *cell* is a row's place in the flat table: ``step * envs + env``.

    Attributes:
        columns: field -> view [steps, envs, ...] (for Dict observations a dict of such views).
        cells: the same views as [steps * envs, ...].
    """

    def __init__(self, dtype: np.dtype, steps: int, envs: int):
        self.dtype, self.steps, self.envs = dtype, steps, envs
        self.rows = np.zeros(steps * envs, dtype)
        grid = self.rows.reshape(steps, envs)
        self.columns: dict[str, Any] = {name: unpack(grid[name]) for name in dtype.names or ()}
        self.cells: dict[str, Any] = {name: unpack(self.rows[name]) for name in dtype.names or ()}
        self._bytes = torch.from_numpy(self.rows.view(np.uint8).reshape(len(self.rows), dtype.itemsize))

    def take(self, cells: np.ndarray) -> np.ndarray:
        """Copies of some records: [B] int64 cells -> [B] records."""
        if self.dtype.itemsize < LARGE_ROW:
            return self.rows.take(cells)
        gathered = torch.index_select(self._bytes, 0, torch.from_numpy(cells))
        return gathered.numpy().view(self.dtype).reshape(len(cells))
