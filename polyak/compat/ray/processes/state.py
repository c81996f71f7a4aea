"""What a model has learned, on its way from one process to another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polyak.checkpoint.parameters import restore, store
from polyak.checkpoint.saved import Saved

MOVING = ("kl_coef", "_n_updates", "_since_broadcast")


def state_of(model: Any) -> Saved:
    """All that a model has learned."""
    saved = Saved({})
    store(model.learner, saved)
    return saved


def bring(model: Any, state: Saved, values: dict[str, Any]) -> None:
    """Bring a model to what :func:`state_of` and :func:`values_of` said. Arrays that came from elsewhere are copied:
    those are read-only."""
    restore(model.learner, replace(state, networks=_own(state.networks), optimizers=_own(state.optimizers)))
    for name, value in values.items():
        setattr(model, name, value)


def _own(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in arrays.items()}


def values_of(model: Any) -> dict[str, Any]:
    """What learning moves besides."""
    return {name: getattr(model, name) for name in MOVING if hasattr(model, name)}
