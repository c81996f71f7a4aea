"""A function as recorded calls that compute its result again, into the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from polyak.nn.backends.plan import Plan
from polyak.nn.backends.recording import Visited
from polyak.nn.backends.tracing import Traced, Tracer, UntraceableError, memory, undisturbed


class TracedProgram:
    """The operations of a function on tensors, without its Python code.

    Args:
        function: takes no arguments; it reads ``inputs``, and tensors of the modules whose methods it calls. It is
            called once, now; the state of the random number generator is restored.
        inputs: the tensors that change between two runs; they are filled in place.

    Attributes:
        result: the value that the function returned. Its tensors are filled at each run.
        modules: the modules whose methods the function called.
        has_own_code: whether it ran code that is neither torch's nor polyak's.
        reads: the tensors of those modules that it reads: parameters, buffers and others.
        calls: the calls that fill the tensors of :attr:`result`, in order.

    Raises:
        UntraceableError: the operations may differ at the next call, or write into their inputs.
    """

    def __init__(self, function: Callable[[], Any], inputs: Sequence[Tensor]) -> None:
        tracer, visited = Tracer({}, borrows=True), Visited()
        with torch.random.fork_rng(devices=()), torch.no_grad(), undisturbed(), tracer, visited:
            found = function()
        self.modules = visited.modules
        self.has_own_code = visited.has_own_code
        self.reads = _read(tracer.lent, inputs, self.modules)
        traced = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Traced)]
        tracer.graph.output([leaf.node for leaf in traced])
        module: Any = SimpleNamespace(graph=tracer.graph, **tracer.constants)  # without the code that torch writes
        plan = Plan(module, tracer.lent, set(map(id, tracer.lent)))
        filled = {id(leaf): result for leaf, result in zip(traced, plan.results, strict=True)}
        self.result = tree_map_only(Traced, lambda leaf: filled[id(leaf)], found)
        self.calls = plan.calls

    def __call__(self) -> None:
        """Fill the tensors of :attr:`result`."""
        for call in self.calls:
            call()


def _read(lent: Sequence[Tensor], inputs: Sequence[Tensor], modules: Sequence[nn.Module]) -> list[Tensor]:
    """Returns the tensors of modules that the function read, without the inputs.

    Raises:
        UntraceableError: no module holds a tensor that was read, or numpy cannot read it.
    """
    found = set(map(memory, lent)) - set(map(memory, inputs))
    held = [tensor for module in modules for tensor in _tensors(module) if _readable(tensor)]
    if found - set(map(memory, held)):
        raise UntraceableError("it reads a tensor that is not an ordinary one of a module, on the CPU")
    return [tensor for tensor in held if memory(tensor) in found]


def _tensors(module: nn.Module) -> list[Tensor]:
    held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
    return [tensor for tensor in held if isinstance(tensor, Tensor)]


def _readable(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.layout is torch.strided
