"""``evaluations.npz``: what the evaluations of a run leave in its folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyak.core.files.archive import DAMAGED

EVALUATIONS_NPZ = "evaluations.npz"
_STEPS = "timesteps"


class EvaluationFile(NamedTuple):
    """One run's evaluations.

    Fields: ``steps`` [n], rising; ``tables`` [n, episodes] by key; ``keys`` all that the file has, read or not.
    """

    steps: np.ndarray
    tables: dict[str, np.ndarray]
    keys: frozenset[str]


def read_evaluation_file(path: Path, keys: Iterable[str]) -> EvaluationFile:
    """Read those of `keys` that the file has, such as ``results`` and ``ep_lengths``. Never unpickles.

    Of several evaluations at one step the last counts. Raises OSError if there is no such file, and ValueError with the
    reason if it is damaged, or its arrays do not fit.
    """
    if not path.stat().st_size:
        raise ValueError("it is empty")
    try:
        with np.load(path, allow_pickle=False) as data:
            if _STEPS not in data:
                raise ValueError(f"it has no {_STEPS}; it holds {', '.join(data.files) or 'nothing'}")
            steps = np.asarray(data[_STEPS]).reshape(-1).astype(np.int64)
            rising, places = np.unique(steps[::-1], return_index=True)
            last = len(steps) - 1 - places
            tables = {
                key: np.asarray(data[key], dtype=np.float64).reshape(len(steps), -1)[last]
                for key in keys
                if key in data and len(steps)
            }
            return EvaluationFile(rising, tables, frozenset(data.files) - {_STEPS})
    except (*DAMAGED, AttributeError, KeyError, TypeError, MemoryError) as error:  # a lone array has no names
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
