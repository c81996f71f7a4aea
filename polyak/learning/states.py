"""States of a rollout that a learner evaluates besides its rows, and what it says of both.

Shapes: R rows; S successors; N environments; M choices.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.data.step import Step
from polyak.experience.arrays import mapped
from polyak.nn.policies.base import State
from polyak.ops.transfer import to_device


class Evaluation(NamedTuple):
    """What a policy makes of a rollout's rows and of its successors."""

    values: Tensor | None
    """[R]; ``None``: the rows have values already."""
    log_probs: Tensor | None
    """[R] of the actions taken."""
    next_values: Tensor
    """[S]"""
    state_values: Tensor | None = None
    """[R] what the rows' states count as successors, where that is not their ``values``."""


class States(NamedTuple):
    """Some states in which steps have ended, as arrays or as tensors."""

    observations: Any
    """[S, ...], or a dict of these."""
    memory: State
    """Name -> [S, ...]: the recurrent state, always tensors; empty of a policy without one."""
    masks: Any
    """[S, M] bool, which choices are allowed; ``None``: all."""

    @classmethod
    def cut(cls, step: Step, memory: State | None) -> "States":
        """Those in which a step cut episodes short, from the recurrent state [N, ...] after it."""
        rows, masks = step.truncated, step.extras.get("next_masks")
        kept = torch.from_numpy(rows)
        return cls(
            mapped(lambda part: part[rows], step.next_observations),
            {name: state[kept.to(state.device)] for name, state in (memory or {}).items()},
            None if masks is None else masks[rows],
        )

    @classmethod
    def joined(cls, parts: Sequence["States"]) -> "States":
        """One after another."""
        if len(parts) == 1:
            return parts[0]
        masks = [part.masks for part in parts if part.masks is not None]
        return cls(
            mapped(lambda *own: np.concatenate(own), *(part.observations for part in parts)),
            {name: torch.cat([part.memory[name] for part in parts]) for name in parts[0].memory},
            np.concatenate(masks) if masks else None,
        )

    def pieces(self, most: int) -> Iterator["States"]:
        """The same, at most so many at a time."""
        count = len(
            next(iter(self.observations.values())) if isinstance(self.observations, dict) else self.observations
        )
        if count <= most:
            yield self
            return
        for start in range(0, count, most):
            rows = slice(start, start + most)
            memory = {name: state[rows] for name, state in self.memory.items()}
            masks = None if self.masks is None else self.masks[rows]
            yield States(sliced(self.observations, rows), memory, masks)

    def tensors(self, space: spaces.Space, device: torch.device) -> "States":
        """The same as tensors; ``space``: of the observations."""
        masks = None if self.masks is None else to_device(torch.from_numpy(self.masks), device)
        return self._replace(observations=_tensors(self.observations, space, device), masks=masks)


def sliced(column: Any, rows: slice) -> Any:
    """Some rows of a column, or of a dict of them."""
    return mapped(lambda part: part[rows], column)


def _tensors(observations: Any, space: spaces.Space, device: torch.device) -> Any:
    """Observations [S, ...] of a space as tensors of its shape and type."""
    if isinstance(space, spaces.Dict):
        return {key: _tensors(observations[key], part, device) for key, part in space.spaces.items()}
    rows = np.array(observations, space.dtype, order="C").reshape(-1, *(space.shape or ()))
    return to_device(torch.from_numpy(rows), device)
