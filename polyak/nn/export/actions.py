"""Conversion of actions to the environment's units, as an :class:`~polyak.nn.codec.ActionCodec` does, on tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyak.nn.codec import ActionCodec, ComposedCodec, stretched
from polyak.nn.export.ports import Port


class _PartActions(nn.Module):
    """One part of an action, which has the numbers of its codec as buffers.

    Args:
        codec: the codec of a space that is not composed.
    """

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__()
        self.shape, self.dtype = codec.shape, getattr(torch, np.dtype(codec.space.dtype).name)
        for name, values in codec.numbers().items():  # with an axis of rows: torch promotes to no dtype of scalars
            self.register_buffer(name, torch.from_numpy(np.array(values))[None])

    def forward(self, actions: Tensor) -> Tensor:
        """[B, ...] -> [B, *shape] in the dtype of the space."""
        actions, numbers = actions.reshape(-1, *self.shape), dict(self.named_buffers())
        if "start" in numbers:
            return (actions.long() + numbers["start"]).to(self.dtype)
        inside = stretched(actions, **numbers, library=torch)
        return (inside if self.dtype.is_floating_point else inside.round()).to(self.dtype)


class EnvironmentActions(nn.Module):
    """All parts of an action; a space that is not composed has one.

    Args:
        codec: the codec that is exported.
    """

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__()
        self.widths = codec.widths if isinstance(codec, ComposedCodec) else None
        self.maps = nn.ModuleList(_PartActions(own) for _, own in codec.parts)
        self.ports = [
            Port(
                f"action.{part.name}" if part.path else "action",
                "action",
                own.shape,
                np.dtype(part.space.dtype).name,
                {"path": list(part.path)} if part.path else {},
            )
            for part, own in codec.parts
        ]

    def to_env(self, actions: Tensor) -> Tensor:
        """[B, ...] of a policy -> [B, ...] of a space that is not composed."""
        return self(actions)[0]

    def forward(self, actions: Tensor) -> tuple[Tensor, ...]:
        """[B, ...] of a policy -> [B, ...] of each part, in the order of :mod:`polyak.envs.nested_spaces`."""
        columns = (actions,) if self.widths is None else actions.split(self.widths, dim=1)
        return tuple(to_env(own) for to_env, own in zip(self.maps, columns, strict=True))
