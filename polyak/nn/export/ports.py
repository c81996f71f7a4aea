"""Inputs and outputs of an exported graph: names, roles, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

FORMAT = "polyak.policy"
VERSION = 1

Role = Literal["observation", "action_masks", "state", "noise", "action"]


@dataclass(frozen=True)
class Port:
    """One input or output of a graph: a tensor [B, *shape]."""

    name: str
    role: Role
    shape: tuple[int, ...]
    """The shape of one row."""
    dtype: str
    """The dtype by numpy's name."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further facts, as JSON values: ``key`` of a Dict observation, ``path`` of a part of an action,
    ``initial`` and ``becomes`` of a recurrent state, ``draw`` of noise."""

    def describe(self) -> dict[str, Any]:
        """JSON values."""
        rows = ["batch", *self.shape]
        return {"name": self.name, "role": self.role, "shape": rows, "dtype": self.dtype, **self.details}

    def example(self, rows: int) -> Tensor:
        """A tensor to trace the graph with; only its shape and dtype matter."""
        return torch.from_numpy(np.zeros((rows, *self.shape), self.dtype))


class Graph(nn.Module):
    """An exportable module: one tensor for each of ``inputs``, in order -> one for each of ``outputs``."""

    inputs: Sequence[Port]
    outputs: Sequence[Port]
    observation_space: spaces.Space
    """The observation space of the environment."""
    action_space: spaces.Space
    about: Mapping[str, Any] = MappingProxyType({})
    """Further facts that a program needs to use the graph, as JSON values."""

    def describe(self) -> dict[str, Any]:
        """Inputs, outputs and spaces, as JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "inputs": [port.describe() for port in self.inputs],
            "outputs": [port.describe() for port in self.outputs],
            "observation_space": describe_space(self.observation_space),
            "action_space": describe_space(self.action_space),
            **self.about,
        }


def observation_ports(space: spaces.Space) -> list[Port]:
    """``observation``, or ``observation.<key>`` for each entry of a Dict, in the dtype of its space."""
    if isinstance(space, spaces.Dict):
        return [_observation(f"observation.{key}", part, {"key": key}) for key, part in space.spaces.items()]
    return [_observation("observation", space, {})]


def _observation(name: str, space: spaces.Space, details: dict[str, Any]) -> Port:
    return Port(name, "observation", tuple(space.shape or ()), np.dtype(space.dtype).name, details)


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
    """Returns one number if all entries are equal, else nested lists. Null replaces infinity, which JSON does not
    have."""
    known: Any = values.astype(object)
    known[~np.isfinite(values)] = None
    entries = known.reshape(-1)
    return entries[0] if entries.size and all(entry == entries[0] for entry in entries) else known.tolist()
