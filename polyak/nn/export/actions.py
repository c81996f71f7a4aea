"""From actions in the network's units to those that the environment takes.

The same numbers as :class:`~polyak.nn.codec.ActionCodec` gives, in operations of tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.envs.composed import is_composed, parts
from polyak.envs.spaces import get_action_dim, wide_bounds
from polyak.nn.export.ports import Port


class BoxActions(nn.Module):
    """Actions of a Box: stretched from [-1, 1] to its bounds, or clipped to them; of integers the nearest.

    Args:
        space: the Box.
        squash: whether the network's actions lie in [-1, 1] and stand for the range of the Box.
    """

    low: Tensor
    high: Tensor
    stretch: Tensor

    def __init__(self, space: spaces.Box, squash: bool = False) -> None:
        super().__init__()
        self.squash, self.dtype = squash, _torch_dtype(space)
        low, high = wide_bounds(space)
        with np.errstate(over="ignore", invalid="ignore"):
            half = 0.5 * (high - low)
        for name, values in (("low", low), ("high", high), ("stretch", half)):
            self.register_buffer(name, torch.from_numpy(np.array(values)))

    def forward(self, actions: Tensor) -> Tensor:
        """[B, ...] -> [B, ...] in the dtype of the Box."""
        numbers = (actions + 1.0 if self.squash else actions).to(self.low.dtype)
        if self.squash:
            numbers = self.low + numbers * self.stretch
        inside = torch.minimum(torch.maximum(numbers, self.low), self.high)
        return inside.to(self.dtype) if self.dtype.is_floating_point else inside.round().to(self.dtype)


class ChoiceActions(nn.Module):
    """Choices of a Discrete or MultiDiscrete, which count from 0 for the network, and switches of a MultiBinary.

    Args:
        space: the action space.
    """

    start: Tensor

    def __init__(self, space: spaces.Space) -> None:
        super().__init__()
        self.dtype = _torch_dtype(space)
        first = getattr(space, "start", 0)
        self.register_buffer("start", torch.from_numpy(np.array(first, np.int64)))

    def forward(self, actions: Tensor) -> Tensor:
        """[B, ...] of any dtype -> [B, ...] in the dtype of the space."""
        return (actions.long() + self.start).to(self.dtype)


class EnvironmentActions(nn.Module):
    """All parts of an action; a space that is not composed has one.

    Args:
        space: the action space.
        squash: see :class:`BoxActions`.
    """

    def __init__(self, space: spaces.Space, squash: bool = False) -> None:
        super().__init__()
        self.space, self._parts = space, parts(space)
        composed = is_composed(space)
        self.columns = [get_action_dim(part.space) for part in self._parts] if composed else None
        self.shapes = [tuple(part.space.shape or ()) for part in self._parts]
        self.maps = nn.ModuleList(_map(part.space, squash and not composed) for part in self._parts)
        self.ports = [
            Port(
                f"action.{part.name}" if composed else "action",
                "action",
                shape,
                np.dtype(part.space.dtype).name,
                {"path": list(part.path)} if composed else {},
            )
            for part, shape in zip(self._parts, self.shapes, strict=True)
        ]

    def forward(self, actions: Tensor) -> tuple[Tensor, ...]:
        """[B, ...] as a policy gives them -> [B, ...] of each part, in the order of :mod:`polyak.envs.composed`."""
        columns = (actions,) if self.columns is None else actions.split(self.columns, dim=1)
        shaped = (own.reshape(-1, *shape) for own, shape in zip(columns, self.shapes, strict=True))
        return tuple(to_env(own) for to_env, own in zip(self.maps, shaped, strict=True))


def _map(space: spaces.Space, squash: bool) -> nn.Module:
    return BoxActions(space, squash) if isinstance(space, spaces.Box) else ChoiceActions(space)


def _torch_dtype(space: spaces.Space) -> torch.dtype:
    """The dtype of the space."""
    found: Any = getattr(torch, np.dtype(space.dtype).name)
    return found
