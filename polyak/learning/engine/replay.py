"""A program without a compiler: the flat graph as calls of numpy and torch on preallocated memory.

Small networks learn about as fast by it as by a compiled program, without compile time: most of the time of their
gradient steps is call overhead, which is smallest in numpy. See :mod:`polyak.nn.backends.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from polyak.learning.engine.optimizer_rules import FUSED
from polyak.learning.engine.program import Program
from polyak.nn.backends.plan import Plan

aten = torch.ops.aten


class ReplayedProgram(Program):
    """A :class:`~polyak.learning.engine.program.Program` that is planned instead of compiled."""

    status = "replayed"
    rules = FUSED

    def compile(self) -> None:
        """Plan the graph for the learner's present tensors."""
        self._learners = self._inputs.tensors
        self._pointers = self._addresses()
        fixed = frozenset(map(id, self._arguments[: len(self._learners) + len(self._draws)]))
        self._run = self._parts(partial(Plan, fixed=fixed))

    def _addresses(self) -> list[int]:
        """Returns the addresses of the learner's tensors, which ``parameter.data = ...`` changes unnoticed."""
        return list(map(Tensor.data_ptr, self._learners))

    def rebind(self) -> bool:
        fits = super().rebind()
        if fits and any(now is not then for now, then in zip(self._inputs.tensors, self._learners, strict=True)):
            self.compile()
        return fits

    def __call__(self, given: Sequence[Tensor]) -> Any:
        if self._pointers != self._addresses():
            self.compile()
        return super().__call__(given)


def _norms(tensors: list[Tensor], ord: float = 2, dtype: torch.dtype | None = None) -> Any:
    """torch._foreach_norm as dot products."""
    if ord != 2 or dtype is not None:
        return NotImplemented
    return [torch.dot(flat, flat).sqrt() for flat in (tensor.reshape(-1) for tensor in tensors)]


def _scaled(tensors: Sequence[Tensor], factor: Tensor) -> None:
    for tensor in tensors:
        tensor.mul_(factor)


ReplayedProgram.decompositions = {
    **Program.decompositions,
    aten._foreach_norm.Scalar: _norms,
    aten._foreach_mul_.Tensor: _scaled,
}
