"""A function's operations on tensors, written down as a flat graph while it runs once on copies.

torch's own tracer, ``make_fx``, imports the front end of its compiler, which takes as long as torch itself does, and
looks up much that a flat graph has no use for. So do torch's kernels for tensors without memory. Here the function runs
on wrappers of tensors that have numbers, which its code cannot read.
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
"""Operations that depend on numbers if an index is a mask."""


def _refused(cls: type, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise UntraceableError(f"it keeps a tensor beyond the step, and calls {operation} on it")


class _Traced(Tensor):
    """Stands for a tensor in traced code.

    Args:
        numbers: the tensor.
        example: one on the device ``meta`` that is laid out alike; views of one memory have examples that share theirs.
        node: computes it.
        is_constant: whether it is the same in each run, so that its numbers may be read.
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
    """Writes down the operations of this thread.

    Args:
        decompositions: see :func:`trace`.
    """

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.graph, self.constants, self._decompositions = Graph(), dict[str, Tensor](), decompositions
        self._lent: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled here, and to skip it torch would import its whole compiler."""
        return False

    def given(self, name: str, tensor: Tensor, is_lent: bool) -> _Traced:
        """What stands for an input: a copy of it, or if it is only lent the tensor itself."""
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
        node = self.graph.call_function(_out_of_place(operation), *nodes)
        if not operation._schema.returns:  # it only changes what is there
            return None
        with torch._C._DisableTorchDispatch():  # other modes are shown nothing
            found = operation(*real_args, **real_kwargs)

        def outer(tensor: Tensor, node: Node) -> _Traced:
            if (mine := own.get(id(tensor))) is None:
                return _Traced(tensor, _example(tensor, own.values()), node)
            if torch.Tag.inplace_view in operation.tags:
                with torch._C._DisableTorchDispatch():
                    operation(*args, **kwargs)
                mine.example = _example(tensor, [mine])
            mine.node = node  # which has changed it in place
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
        """Before an operation that changes some of what it gets.

        Raises:
            UntraceableError: what is only lent.
        """
        arguments = zip(args, operation._schema.arguments, strict=False)
        changed = [arg for arg, of in arguments if of.alias_info is not None and of.alias_info.is_write]
        if any(memory(leaf.numbers) in self._lent for leaf in tree_leaves(changed) if isinstance(leaf, _Traced)):
            raise UntraceableError("it changes the batch")
        if not operation._schema.returns or not all(each.is_constant for each in own):
            for each in own:
                each.is_constant = False

    def _constant(self, tensor: Tensor) -> _Traced:
        """A tensor of numbers in the code, which a step may change: it is copied in each."""
        name = f"_tensor_constant{len(self.constants)}"
        self.constants[name] = tensor
        attribute = self.graph.get_attr(name)
        attribute.meta["val"] = _example(tensor, ())
        node = self.graph.call_function(aten.lift_fresh_copy.default, (attribute,))
        copied = tensor.clone()
        return _Traced(copied, _example(copied, ()), node, is_constant=True)


def _example(real: Tensor, others: Iterable[_Traced]) -> Tensor:
    """A tensor without numbers that is laid out like ``real``, in the memory of that of others with which this shares
    its own."""
    whole = next((other.example for other in others if memory(other.numbers) == memory(real)), None)
    with torch._C._DisableTorchDispatch():
        if whole is None:
            whole = torch.empty(real.untyped_storage().nbytes(), dtype=torch.uint8, device="meta")
        return torch.empty(0, dtype=real.dtype, device="meta").set_(
            whole.untyped_storage(), real.storage_offset(), real.shape, real.stride()
        )


def _parts(operation: OpOverload) -> Callable[..., Any] | None:
    """What calls the operations of which one is made everywhere; ``None`` of one with a kernel of its own."""
    kernel = partial(torch._C._dispatch_has_kernel_for_dispatch_key, operation.name())
    return operation.decompose if operation._can_decompose() and not kernel("CPU") and not kernel("CUDA") else None


def _out_of_place(operation: OpOverload) -> OpOverload:
    """What returns a view in the shape that an operation gives a tensor itself, as ``squeeze_`` does, for one that does
    so; others as they are."""
    if torch.Tag.inplace_view not in operation.tags:
        return operation
    packet = getattr(aten, operation.overloadpacket.__name__.removesuffix("_"), None)
    return getattr(packet, operation._overloadname, operation)


def _depends_on_numbers(operation: OpOverload, args: Any, own: Mapping[int, _Traced]) -> bool:
    """Whether what an operation returns, and not only its numbers, depends on those that it gets; and these are always
    the same.

    Raises:
        UntraceableError: they are not.
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
    """The operations of a function. It draws random numbers.

    Args:
        function: of tensors, returns tensors; without branches on their numbers. Tensors like ``changed`` come first,
            and it may change them in place.
        changed, given: like its arguments. They stay as they are.
        decompositions: operations that others take the place of: what calls those.

    Returns:
        A graph whose nodes carry example values without numbers, on the device ``meta``: views of one tensor share
        memory.

    Raises:
        UntraceableError: it reads numbers, or tensors besides its arguments, or changes what is only given.
    """
    tracer, cached = _Tracer(decompositions), torch.is_autocast_cache_enabled()
    inputs = [tracer.given(f"arg{i}_1", t, i >= len(changed)) for i, t in enumerate((*changed, *given))]
    torch.set_autocast_cache_enabled(False)  # it may hold a tensor that was not traced
    collects = gc.isenabled()
    gc.disable()  # what is collected may call torch when it goes, which is no part of the function
    try:
        with tracer:
            results: Any = function(*inputs)
    finally:
        torch.set_autocast_cache_enabled(cached)
        if collects:
            gc.enable()
    tracer.graph.output([result.node for result in results])
    return GraphModule(tracer.constants, tracer.graph)
