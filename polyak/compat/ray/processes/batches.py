"""Rows of a replay buffer on their way to learners in other processes: arrays, in equal parts.

Shapes: B rows, or sequences; L learners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from polyak.data import Transition
from polyak.data.batch import gathered
from polyak.experience.arrays import mapped
from polyak.learning.data_parallel import share_of

Columns = dict[str, Any]
"""Fields of a :class:`~polyak.data.Transition`: arrays [B, ...], dicts of them, or ``None``."""


def columns_of(batch: Any) -> Columns:
    """A batch as arrays."""
    return {
        name: _each(value, lambda part: part.numpy(force=True)) for name, value in gathered(batch)._asdict().items()
    }


def batch_of(columns: Columns, device: Any) -> Transition:
    """The inverse of :func:`columns_of`. Arrays are copied: those of another process are read-only."""
    return Transition(
        **{
            name: _each(value, lambda part: torch.from_numpy(np.array(part)).to(device))
            for name, value in columns.items()
        }
    )


def shares(columns: Columns, parts: int) -> list[Columns]:
    """As many batches of ``ceil(B / L)`` rows. Where these cannot be dealt out evenly, some stand in two parts:
    means over learners are means over rows only if all have equally many."""
    rows = len(columns["rewards"])
    places = [share_of(rows, part, parts).numpy() for part in range(parts)]
    return [{name: _each(value, lambda part: part[at]) for name, value in columns.items()} for at in places]  # noqa: B023


def errors_of(parts: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Errors of the whole batch, in its order, from those of its shares; of sequences several to each."""
    width = -(-rows // len(parts))
    return np.concatenate([part.reshape(width, -1) for part in parts])[:rows].reshape(-1)


def _each(value: Any, function: Any) -> Any:
    return None if value is None else mapped(function, value)
