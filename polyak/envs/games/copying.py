"""Copies of environments as they stand, and arrays of objects."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np


def copied(env: Any) -> Any:
    """An environment, with its wrappers, in the middle of an episode as this one is.

    ``deepcopy`` alone would make a new one of those that say how to pickle them (``EzPickle``), which is not reset.

    Raises:
        TypeError: something in it cannot be copied.
    """
    layers, at = [], env
    while at is not None and not hasattr(type(at), "__deepcopy__"):
        layers.append(at)
        at = vars(at).get("env")
    shells = {id(layer): object.__new__(type(layer)) for layer in layers}
    memo: dict[int, Any] = dict(shells)
    try:
        for layer in layers:
            shells[id(layer)].__dict__.update(deepcopy(vars(layer), memo))
    except Exception as error:  # whatever holds a window, a socket or a process
        raise TypeError(f"env={env!r:.80} cannot be copied ({type(error).__name__}: {error}).") from error
    return shells[id(env)] if layers else deepcopy(env)


def as_objects(items: Sequence[Any]) -> np.ndarray:
    """[B] whatever they are, also where they look like arrays themselves."""
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made
