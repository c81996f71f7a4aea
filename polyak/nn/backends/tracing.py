"""Recording of a function's tensor operations as a flat graph, in one run on copies.

torch's own tracer, ``make_fx``, imports the front end of its compiler, which takes as long to import as torch itself,
and computes much that a flat graph does not need. So do torch's kernels for tensors without memory. Here the function
runs on wrappers around real tensors, whose values its code cannot read.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten

_INDEXED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
"""Operations whose shapes depend on values if an index is a mask."""


class UntraceableError(RuntimeError):
    """Raised for a function that cannot become one graph; the message gives the reason."""


@cache
def tags_of(operation: Any) -> frozenset[Any]:
    """Returns the tags of an operation. torch makes a new list at each access, which is slow."""
    return frozenset(getattr(operation, "tags", ()))


def _refused(cls: type, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise UntraceableError(f"it keeps a tensor beyond the step, and calls {operation} on it")


class Traced(Tensor):
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
    ) -> Traced:
        made: Traced = Tensor._make_wrapper_subclass(
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


class Tracer(TorchDispatchMode):
    """Records the operations of this thread.

    Args:
        decompositions: see :func:`trace`.
        borrows: whether the function may read any tensor. The tensor becomes an input, which is only read.

    Attributes:
        graph: the recorded operations.
        constants: the tensors that are attributes of the graph.
        lent: the inputs that the function may not change, in the order of the graph.
    """

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]], borrows: bool = False) -> None:
        super().__init__()
        self.graph, self.constants, self._decompositions = Graph(), dict[str, Tensor](), decompositions
        self.lent: list[Tensor] = []
        self._borrows, self._lent = borrows, set[int]()
        self._stand_ins: dict[int, Traced] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: nothing is compiled here, and skipping dynamo would import torch's whole compiler."""
        return False

    def given(self, name: str, tensor: Tensor, is_lent: bool) -> Traced:
        """Returns the stand-in of an input: of a copy, or of the tensor itself if it is only read."""
        real = tensor.detach() if is_lent else tensor.detach().clone()
        if is_lent:
            self.lent.append(tensor)
            self._lent.add(memory(real))
        return Traced(real, _example(real, ()), self.graph.placeholder(name), tensor.requires_grad)

    def _stand_in(self, tensor: Tensor) -> Traced:
        """Returns the stand-in of an argument of an operation."""
        if isinstance(tensor, Traced):
            return tensor
        if not self._borrows:
            raise UntraceableError("it reads a tensor that is neither the learner's nor in the batch")
        if id(tensor) not in self._stand_ins:
            self._stand_ins[id(tensor)] = self.given(f"lent{len(self.lent)}", tensor, True)
        return self._stand_ins[id(tensor)]

    def __torch_dispatch__(self, *call: Any) -> Any:
        noting = sys.getprofile()
        sys.setprofile(None)  # a profiler follows the function, not the recording
        try:
            return self._recorded(*call)
        finally:
            sys.setprofile(noting)

    def _recorded(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (by := self._decompositions.get(operation, _parts(operation))) is not None:
            with self:
                if (found := by(*args, **kwargs)) is not NotImplemented:
                    return found
        if operation is aten.lift_fresh.default:
            return self._constant(*args)
        args, kwargs = tree_map_only(Tensor, self._stand_in, (args, kwargs))
        own = {id(leaf.numbers): leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Traced)}
        real_args, real_kwargs = tree_map_only(Traced, operator.attrgetter("numbers"), (args, kwargs))
        if _depends_on_numbers(operation, args, own):
            return operation(*real_args, **real_kwargs)
        if operation._schema.is_mutable:
            self._change(operation, args, own.values())
        nodes = tree_map_only(Traced, operator.attrgetter("node"), (args, kwargs))
        node = self.graph.call_function(_out_of_place(operation), *nodes)
        if not operation._schema.returns:  # it only changes its arguments
            return None
        with torch._C._DisableTorchDispatch():  # other modes do not see this call
            found = operation(*real_args, **real_kwargs)

        def outer(tensor: Tensor, node: Node) -> Traced:
            if (mine := own.get(id(tensor))) is None:
                return Traced(tensor, _example(tensor, own.values()), node)
            if torch.Tag.inplace_view in tags_of(operation):
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
        node.meta["val"] = type(found)(part.example if isinstance(part, Traced) else part for part in parts)
        return type(found)(parts)

    def _change(self, operation: OpOverload, args: Any, own: Iterable[Traced]) -> None:
        """Check an operation that changes some of its arguments.

        Raises:
            UntraceableError: it changes an input that is only read.
        """
        arguments = zip(args, operation._schema.arguments, strict=False)
        changed = [arg for arg, of in arguments if of.alias_info is not None and of.alias_info.is_write]
        if any(memory(leaf.numbers) in self._lent for leaf in tree_leaves(changed) if isinstance(leaf, Traced)):
            raise UntraceableError("it writes into what it reads, such as the batch")
        if not operation._schema.returns or not all(each.is_constant for each in own):
            for each in own:
                each.is_constant = False

    def _constant(self, tensor: Tensor) -> Traced:
        """Returns a stand-in for a tensor constant of the code, which each run copies, since a step may change it."""
        name = f"_tensor_constant{len(self.constants)}"
        self.constants[name] = tensor
        attribute = self.graph.get_attr(name)
        attribute.meta["val"] = _example(tensor, ())
        node = self.graph.call_function(aten.lift_fresh_copy.default, (attribute,))
        copied = tensor.clone()
        return Traced(copied, _example(copied, ()), node, is_constant=True)


def memory(tensor: Tensor) -> int:
    """An identifier of the memory behind a tensor."""
    return int(tensor.untyped_storage()._cdata)


def _example(real: Tensor, others: Iterable[Traced]) -> Tensor:
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


def _out_of_place(operation: OpOverload) -> OpOverload:
    """Returns the operation that makes a view, for one that changes a tensor's shape in place as ``squeeze_`` does;
    others as they are."""
    if torch.Tag.inplace_view not in tags_of(operation):
        return operation
    packet = getattr(aten, operation.overloadpacket.__name__.removesuffix("_"), None)
    return getattr(packet, operation._overloadname, operation)


def _depends_on_numbers(operation: OpOverload, args: Any, own: Mapping[int, Traced]) -> bool:
    """Whether the kind of an operation's result, not only its values, depends on the values of its arguments, all of
    which are constant.

    Raises:
        UntraceableError: they are not constant.
    """
    if not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & tags_of(operation):
        return False
    indices = tree_leaves(args[1]) if operation in _INDEXED else []
    if indices and not any(index.dtype in (torch.bool, torch.uint8) for index in indices if index is not None):
        return False
    if not all(tensor.is_constant for tensor in own.values()):
        raise UntraceableError(f"its operations depend on numbers, by {operation}")
    return True


@contextmanager
def undisturbed() -> Iterator[None]:
    """Prevents finalizers and cached casts within the block, so that its code runs the same operations each time."""
    cached, collects = torch.is_autocast_cache_enabled(), gc.isenabled()
    torch.set_autocast_cache_enabled(False)  # the cache may hold a tensor that was not traced
    gc.disable()  # finalizers may call torch, which is no part of the function
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)
        if collects:
            gc.enable()


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
    tracer = Tracer(decompositions)
    inputs = [tracer.given(f"arg{i}_1", t, i >= len(changed)) for i, t in enumerate((*changed, *given))]
    with undisturbed(), tracer:
        results: Any = function(*inputs)
    tracer.graph.output([result.node for result in results])
    return GraphModule(tracer.constants, tracer.graph)
