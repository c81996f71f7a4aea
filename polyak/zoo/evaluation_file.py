"""``evaluations.npz``: the results of a run's evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyak.envs.reading import npz

EVALUATIONS_NPZ = "evaluations.npz"
MOST_NUMBERS = 2**22
"""Largest number of entries in the arrays of one file that are read: a million evaluations of four episodes."""
MOST_STEPS = 1e15
_STEPS = "timesteps"


class EvaluationFile(NamedTuple):
    """One run's evaluations.

    Fields: ``steps`` [n], rising; ``tables`` [n, episodes] by key; ``keys`` all keys of the file, read or not.
    """

    steps: np.ndarray
    tables: dict[str, np.ndarray]
    keys: frozenset[str]


def read_evaluation_file(path: Path, keys: Iterable[str]) -> EvaluationFile:
    """Read those of `keys` that the file has, such as ``results`` and ``ep_lengths``. Never unpickles.

    Of several evaluations at one step the last counts. Raises OSError if there is no such file, and ValueError with the
    reason if it is damaged, its arrays do not fit, or they hold more than `MOST_NUMBERS`.
    """
    if not path.stat().st_size:
        raise ValueError("it is empty")
    with npz.opened(path, "it") as archive:
        found = npz.headers(archive, "it", {_STEPS, *keys})
        names = [name.removesuffix(npz.SUFFIX) for name in archive.namelist()]
        if _STEPS not in found:
            raise ValueError(f"it has no {_STEPS}; it holds {', '.join(names[:8]) or 'nothing'}")
        if (numbers := sum(math.prod(header.shape) for header in found.values())) > MOST_NUMBERS:
            raise ValueError(f"it holds {numbers:,} numbers: at most {MOST_NUMBERS:,} are read")
        if wrong := [name for name, header in found.items() if header.dtype.kind not in "biuf"]:
            raise ValueError(f"its {wrong[0]} are of type {found[wrong[0]].dtype}, not numbers")
        arrays = {name: npz.array(archive, name) for name in found}
    steps = _whole(arrays.pop(_STEPS))
    rising, places = np.unique(steps[::-1], return_index=True)
    last = len(steps) - 1 - places
    tables = {
        key: _rows(key, array, len(steps)).astype(np.float64)[last] for key, array in arrays.items() if len(steps)
    }
    return EvaluationFile(rising, tables, frozenset(names) - {_STEPS})


def _whole(steps: np.ndarray) -> np.ndarray:
    """[n] int64; ValueError if they are no whole numbers that fit."""
    flat = steps.reshape(-1)
    if not (np.abs(flat.astype(np.float64)) < MOST_STEPS).all() or (flat != np.floor(flat)).any():
        raise ValueError(f"its {_STEPS} are not whole numbers below {MOST_STEPS:g}")
    return flat.astype(np.int64)


def _rows(key: str, array: np.ndarray, rows: int) -> np.ndarray:
    if array.size % rows:
        raise ValueError(f"its {key} have the shape {list(array.shape)}, but there are {rows} {_STEPS}")
    return array.reshape(rows, -1)
