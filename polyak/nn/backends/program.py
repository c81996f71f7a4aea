"""A function as recorded calls that compute its result again, into the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from polyak.nn.backends.operations import Call, calls_of
from polyak.nn.backends.recording import Operation, Untranslatable, memory, recorded


class TracedProgram:
    """The operations of a function on tensors, without its Python code.

    Args:
        function: of no arguments; it reads ``inputs``, and tensors of the modules whose methods it calls. It is called
            once, now.
        inputs: the tensors that change between two runs; they are filled in place.

    Attributes:
        result: the value that the function returned. Its tensors are filled again at each run.
        modules: the modules whose methods the function called.
        reads: the tensors of those modules that it reads: parameters, buffers and others.

    Raises:
        Untranslatable: the operations may differ at the next call, or write into their inputs.
    """

    def __init__(self, function: Callable[[], Any], inputs: Sequence[Tensor]) -> None:
        self.result, steps, visited = recorded(function)
        steps = list(_without_repeats(steps))
        self.modules = visited.modules
        self.reads = _captured(steps, inputs, self.modules)
        self.calls: list[Call] = []
        results = [leaf for leaf in tree_leaves(self.result) if isinstance(leaf, Tensor)]
        for step in _necessary(steps, {memory(t) for t in (*inputs, *self.reads)}, set(map(memory, results))):
            self.calls += calls_of(step)
        written = {memory(output) for step in steps if step.in_place for output in step.outputs}
        if written & set(map(memory, self.reads)):
            raise Untranslatable("it writes into what it reads")

    def __call__(self) -> None:
        """Fill the tensors of :attr:`result`."""
        for call in self.calls:
            call()


def _captured(steps: Sequence[Operation], inputs: Sequence[Tensor], modules: Sequence[nn.Module]) -> list[Tensor]:
    """The tensors of modules that the steps read, other than inputs and results of steps.

    Raises:
        Untranslatable: they read one that no module holds, or that numpy cannot read.
    """
    made, found = set(map(memory, inputs)), set()
    for step in steps:
        if step.operation not in _OF_CONSTANTS:
            found |= set(map(memory, step.tensors)) - made
        made |= set(map(memory, step.outputs)) - found
    held = [tensor for module in modules for tensor in _tensors(module) if _readable(tensor)]
    if found - set(map(memory, held)):
        raise Untranslatable("it reads a tensor that is not an ordinary one of a module, on the CPU")
    return [tensor for tensor in held if memory(tensor) in found]


_OF_CONSTANTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
"""Operations that make tensors of numbers in the code."""


def _tensors(module: nn.Module) -> list[Tensor]:
    held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
    return [tensor for tensor in held if isinstance(tensor, Tensor)]


def _readable(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.layout is torch.strided


def _without_repeats(steps: Sequence[Operation]) -> Iterator[Operation]:
    """The steps, where a step that repeats an earlier one on the same numbers copies its result."""
    first: dict[Any, Tensor] = {}
    same: dict[int, int] = {}  # memory -> memory that holds the same numbers

    def name(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return type(leaf), repr(leaf)
        held = same.get(memory(leaf), memory(leaf))
        return held, leaf.dtype, leaf.storage_offset(), leaf.shape, leaf.stride()

    for step in steps:
        if step.in_place:
            first.clear()
            same.clear()
        elif step.tensors and len(step.outputs) == 1 and not step.random and not step.is_view:
            key = step.operation, *map(name, tree_leaves((tuple(step.args), dict(step.kwargs))))
            if key in first:
                same[memory(step.outputs[0])] = memory(first[key])
                step = Operation(torch.ops.aten.clone.default, (first[key],), {}, step.outputs)
            else:
                first[key] = step.outputs[0]
        yield step


def _necessary(steps: Sequence[Operation], moving: set[int], needed: set[int]) -> list[Operation]:
    """The steps to run again: they depend on memory that changes, or draw, and results need them."""
    kept = [step for step in steps if not step.is_view]
    depend = []
    for step in kept:
        depend.append(step.random or any(memory(tensor) in moving for tensor in step.tensors))
        if depend[-1]:
            moving |= set(map(memory, step.outputs))
    run = [step for step, own in zip(kept, depend, strict=True) if own]
    overwritten = {memory(output) for step in run if step.in_place for output in step.outputs}
    found = []
    for step, own in zip(reversed(kept), reversed(depend), strict=True):
        writes = set(map(memory, step.outputs))
        if step.random or writes & needed:
            needed |= set(map(memory, step.tensors))
            if own or writes & overwritten:
                found.append(step)
    return found[::-1]
