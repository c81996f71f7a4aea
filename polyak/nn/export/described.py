"""Spaces and arrays as JSON that any program can read."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


def describe_space(space: spaces.Space) -> dict[str, Any]:
    """A space as JSON: its ``type`` and arguments. ``low`` and ``high`` of a Box are null where it has no bound."""
    kind: dict[str, Any] = {"type": type(space).__name__}
    if isinstance(space, spaces.Dict):
        return {**kind, "spaces": {key: describe_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {**kind, "spaces": [describe_space(part) for part in space.spaces]}
    kind |= {"shape": list(space.shape or ()), "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.Box):
        return {**kind, "low": compact(space.low), "high": compact(space.high)}
    if isinstance(space, spaces.Discrete):
        return {**kind, "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {**kind, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    return kind  # a MultiBinary is its shape


def compact(values: np.ndarray) -> Any:
    """One number if all entries are equal, else nested lists; null in place of infinity, which JSON does not have."""
    known: Any = values.astype(object)
    known[~np.isfinite(values)] = None
    entries = known.reshape(-1)
    return entries[0] if entries.size and all(entry == entries[0] for entry in entries) else known.tolist()
