"""Recording of a function's tensor operations as a flat graph, in one run on copies.

torch's own tracer, ``make_fx``, imports the front end of its compiler, which takes as long to import as torch itself,
and computes much that a flat graph does not need. So do torch's kernels for tensors without memory. Here the function
runs on wrappers around real tensors, whose values its code cannot read.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from polyak.learning.engine.optimizer_rules import UntraceableError
from polyak.nn.backends.recording import memory

aten = torch.ops.aten

_INDEXED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
"""Operations whose shapes depend on values if an index is a mask."""


def _refused(cls: type, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise UntraceableError(f"it keeps a tensor beyond the step, and calls {operation} on it")


class _Traced(Tensor):
    """Stands in for a tensor in traced code.

    Args:
        numbers: the real tensor.
        example: one of the same layout on the device ``meta``; views of one memory have examples that share memory.
        node: computes it.
        is_constant: whether its values are the same in each run, so that they may be read.
    """

    numbers: Tensor
    example: Tensor
    node: Node
    is_constant: bool

    @staticmethod
    def __new__(
        cls, numbers: Tensor, example: Tensor, node: Node, requires_grad: bool = False, is_constant: bool = False
    ) -> _Traced:
        made: _Traced = Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=numbers.device,
            requires_grad=requires_grad,
        )
        made.numbers, made.example, made.node, made.is_constant = numbers, example, node, is_constant
        node.meta["val"] = example
        return made

    __torch_dispatch__: Any = classmethod(_refused)


class _Tracer(TorchDispatchMode):
    """Records the operations of this thread.

    Args:
        decompositions: see :func:`trace`.
    """

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.graph, self.constants, self._decompositions = Graph(), dict[str, Tensor](), decompositions
        self._lent: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: nothing is compiled here, and skipping dynamo would import torch's whole compiler."""
        return False

    def given(self, name: str, tensor: Tensor, is_lent: bool) -> _Traced:
        """Returns the stand-in of an input: of a copy, or of the tensor itself if it is only read."""
        real = tensor.detach() if is_lent else tensor.detach().clone()
        if is_lent:
            self._lent.add(memory(real))
        return _Traced(real, _example(real, ()), self.graph.placeholder(name), tensor.requires_grad)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (by := self._decompositions.get(operation, _parts(operation))) is not None:
            with self:
                if (found := by(*args, **kwargs)) is not NotImplemented:
                    return found
        if operation is aten.lift_fresh.default:
            return self._constant(*args)
        own: dict[int, _Traced] = {}

        def real(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, _Traced):
                raise UntraceableError("it reads a tensor that is neither the learner's nor in the batch")
            own[id(tensor.numbers)] = tensor
            return tensor.numbers

        real_args, real_kwargs = tree_map_only(Tensor, real, (args, kwargs))
        if _depends_on_numbers(operation, args, own):
            return operation(*real_args, **real_kwargs)
        if operation._schema.is_mutable:
            self._change(operation, args, own.values())
        nodes = tree_map_only(_Traced, lambda tensor: tensor.node, (args, kwargs))
        node = self.graph.call_function(operation, *nodes)
        if not operation._schema.returns:  # it only changes its arguments
            return None
        with torch._C._DisableTorchDispatch():  # other modes do not see this call
            found = operation(*real_args, **real_kwargs)

        def outer(tensor: Tensor, node: Node) -> _Traced:
            if (mine := own.get(id(tensor))) is None:
                return _Traced(tensor, _example(tensor, own.values()), node)
            if torch.Tag.inplace_view in operation.tags:
                with torch._C._DisableTorchDispatch():
                    operation(*args, **kwargs)
                mine.example = _example(tensor, [mine])
            mine.node = node  # the node has changed it in place
            node.meta["val"] = mine.example
            return mine

        if isinstance(found, Tensor):
            return outer(found, node)
        if not isinstance(found, list | tuple):
            return found
        parts: list[Any] = list(found)
        for place, part in enumerate(parts):
            if isinstance(part, Tensor):
                parts[place] = outer(part, self.graph.call_function(operator.getitem, (node, place)))
        node.meta["val"] = type(found)(part.example if isinstance(part, _Traced) else part for part in parts)
        return type(found)(parts)

    def _change(self, operation: OpOverload, args: Any, own: Iterable[_Traced]) -> None:
        """Check an operation that changes some of its arguments.

        Raises:
            UntraceableError: it changes an input that is only read.
        """
        arguments = zip(args, operation._schema.arguments, strict=False)
        changed = [arg for arg, of in arguments if of.alias_info is not None and of.alias_info.is_write]
        if any(memory(leaf.numbers) in self._lent for leaf in tree_leaves(changed) if isinstance(leaf, _Traced)):
            raise UntraceableError("it changes the batch")
        if not operation._schema.returns or not all(each.is_constant for each in own):
            for each in own:
                each.is_constant = False

    def _constant(self, tensor: Tensor) -> _Traced:
        """Returns a stand-in for a tensor constant of the code, which each run copies, since a step may change it."""
        name = f"_tensor_constant{len(self.constants)}"
        self.constants[name] = tensor
        attribute = self.graph.get_attr(name)
        attribute.meta["val"] = _example(tensor, ())
        node = self.graph.call_function(aten.lift_fresh_copy.default, (attribute,))
        copied = tensor.clone()
        return _Traced(copied, _example(copied, ()), node, is_constant=True)


def _example(real: Tensor, others: Iterable[_Traced]) -> Tensor:
    """Returns a tensor on the meta device with the layout of ``real``; it shares memory with the examples of those
    tensors that ``real`` shares memory with."""
    whole = next((other.example for other in others if memory(other.numbers) == memory(real)), None)
    with torch._C._DisableTorchDispatch():
        if whole is None:
            whole = torch.empty(real.untyped_storage().nbytes(), dtype=torch.uint8, device="meta")
        return torch.empty(0, dtype=real.dtype, device="meta").set_(
            whole.untyped_storage(), real.storage_offset(), real.shape, real.stride()
        )


def _parts(operation: OpOverload) -> Callable[..., Any] | None:
    """Returns the decomposition of a composite operation; ``None`` for one with a kernel of its own."""
    kernel = partial(torch._C._dispatch_has_kernel_for_dispatch_key, operation.name())
    return operation.decompose if operation._can_decompose() and not kernel("CPU") and not kernel("CUDA") else None


def _depends_on_numbers(operation: OpOverload, args: Any, own: Mapping[int, _Traced]) -> bool:
    """Whether the kind of an operation's result, not only its values, depends on the values of its arguments, all of
    which are constant.

    Raises:
        UntraceableError: they are not constant.
    """
    if not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(operation.tags):
        return False
    indices = tree_leaves(args[1]) if operation in _INDEXED else []
    if indices and not any(index.dtype in (torch.bool, torch.uint8) for index in indices if index is not None):
        return False
    if not all(tensor.is_constant for tensor in own.values()):
        raise UntraceableError(f"its operations depend on numbers, by {operation}")
    return True


def trace(
    function: Callable[..., Sequence[Tensor]],
    changed: Sequence[Tensor],
    given: Sequence[Tensor],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> GraphModule:
    """Returns the operations of a function as a graph. The run draws random numbers.

    Args:
        function: takes and returns tensors; without branches on their values. Tensors like ``changed`` come first, and
            may be changed in place.
        changed, given: examples of its arguments; not modified.
        decompositions: operation -> function that calls the replacing operations.

    Returns:
        A graph whose nodes carry examples on the device ``meta``: views of one tensor share memory.

    Raises:
        UntraceableError: the function reads values, reads tensors besides its arguments, or changes ``given``.
    """
    tracer, cached = _Tracer(decompositions), torch.is_autocast_cache_enabled()
    inputs = [tracer.given(f"arg{i}_1", t, i >= len(changed)) for i, t in enumerate((*changed, *given))]
    torch.set_autocast_cache_enabled(False)  # the cache may hold a tensor that was not traced
    collects = gc.isenabled()
    gc.disable()  # finalizers may call torch, which is no part of the function
    try:
        with tracer:
            results: Any = function(*inputs)
    finally:
        torch.set_autocast_cache_enabled(cached)
        if collects:
            gc.enable()
    tracer.graph.output([result.node for result in results])
    return GraphModule(tracer.constants, tracer.graph)
