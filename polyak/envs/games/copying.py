"""Copies of environments in the middle of an episode, and arrays of objects."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np


def copied(env: Any) -> Any:
    """Returns a copy of an environment and its wrappers, in the same state of its episode.

    ``deepcopy`` alone would construct those with pickling of their own (``EzPickle``) again, without a reset.

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
    except Exception as error:  # such as an object with a window, a socket or a process
        raise TypeError(f"env={env!r:.80} cannot be copied ({type(error).__name__}: {error}).") from error
    return shells[id(env)] if layers else deepcopy(env)


def as_objects(items: Sequence[Any]) -> np.ndarray:
    """Returns an object array [B] of the items, also where these are arrays themselves."""
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made
