"""Operations of torch as calls of numpy, on views of the same memory.

An operation becomes calls without arguments, which compute its output again from the current contents of its
arguments, into the tensor that it returned when it was recorded. Operations without a counterpart here run in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from polyak.nn.backends.tracing import tags_of

aten = torch.ops.aten

TORCH_PRODUCT = 262_144
"""Multiplications in one product of matrices from which torch is faster than numpy, though it costs 2 us more to call:
numpy has fast kernels for small matrices only, and takes more than one thread from here on. A single row is always
computed by numpy."""

NARROW = 64
"""Columns of a large product below which torch computes it transposed."""

TORCH_NUMBERS = 32_768
"""Numbers in a result from which torch computes element by element, and sums: numpy costs 1 to 2 us less to call, and
more for each number."""

MASKED_NUMBERS = 1_024
"""Numbers up to which numpy copies by a mask as quickly as torch."""

Call = Callable[[], Any]
Maker = Callable[..., "list[Call] | None"]
"""(output, *arguments) of an operation -> calls; ``None``: torch has to do it."""


class Operation(NamedTuple):
    """One operation of a graph."""

    operation: Any
    """An overload of ``torch.ops``."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: list[Tensor]
    """The tensors that it returned."""


def is_random(operation: Any) -> bool:
    """Whether an operation draws from a generator. torch's attention on the CPU is said to, but has no dropout."""
    drawn = torch.Tag.nondeterministic_seeded in tags_of(operation)
    return drawn and operation is not aten._scaled_dot_product_flash_attention_for_cpu.default


def calls_of(step: Operation) -> list[Call]:
    """Returns the calls that compute the outputs of a step again."""
    args, kwargs = tree_map(_plain, (tuple(step.args), dict(step.kwargs)))
    outputs = [output.detach() for output in step.outputs]
    maker = MAKERS.get(step.operation)
    found = None if maker is None or len(outputs) != 1 else maker(outputs[0], *args, **kwargs)
    return _by_torch(step, outputs, args, kwargs) if found is None else found


def _plain(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _by_torch(step: Operation, outputs: list[Tensor], args: Any, kwargs: Any) -> list[Call]:
    operation = step.operation
    name = operation.overloadpacket.__name__
    returns_new = any(each.alias_info is None for each in operation._schema.returns)
    if operation._schema.is_mutable and not returns_new:
        quick = getattr(torch._C._VariableFunctions, name, getattr(Tensor, name, None))
        with suppress(RuntimeError, TypeError):  # as below
            if quick is not None:
                quick(*tree_map(_copy, args), **tree_map(_copy, kwargs))
                return [partial(quick, *args, **kwargs)]
        return [partial(operation._op, *args, **kwargs)]
    for call in () if is_random(operation) or operation._schema.is_mutable else _into(operation, outputs, args, kwargs):
        with suppress(RuntimeError, TypeError, IndexError):  # the function in Python has other arguments
            call()
            return [call]

    def compute() -> None:
        found = operation(*args, **kwargs)
        tensors = [now for now in (found if isinstance(found, list | tuple) else (found,)) if now is not None]
        for kept, now in zip(outputs, tensors, strict=True):
            kept.copy_(now)

    return [compute]


def _into(operation: Any, outputs: list[Tensor], args: Any, kwargs: Any) -> Iterator[Call]:
    """Versions of an operation that write into given tensors, the quickest first."""
    packet, wanted = operation.overloadpacket, _arguments(operation, False)
    for overload in (getattr(packet, name) for name in packet.overloads()):
        names = [name for name, _ in _arguments(overload, True)]
        if names and len(names) == len(outputs) and _arguments(overload, False) == wanted:
            binding = getattr(torch._C._VariableFunctions, packet.__name__, None)  # reads its arguments in C
            if binding is not None:
                yield partial(binding, *args, **kwargs, out=outputs[0] if len(outputs) == 1 else tuple(outputs))
            yield partial(overload._op, *args, **kwargs, **dict(zip(names, outputs, strict=True)))


def _arguments(overload: Any, out: bool) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in overload._schema.arguments if a.is_out == out]


# --- arguments in numpy ---------------------------------------------------------------------------------------------


def _operands(output: Tensor, *operands: Any) -> list[np.ndarray] | None:
    """Operands of one element-wise operation, the output last; ``None``: of several types.

    Arrays of one shape are flattened, and numbers become arrays: both are faster.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    dtype = tensors[0].dtype
    if any(tensor.dtype != dtype for tensor in tensors) or not _is_numpys(dtype):
        return None
    if output.dtype not in (dtype, torch.bool) or output.numel() >= TORCH_NUMBERS:
        return None
    kept: list[Tensor] = [o if isinstance(o, Tensor) else torch.full(output.shape, o, dtype=dtype) for o in operands]
    kept.append(output)
    if all(tensor.shape == output.shape and tensor.is_contiguous() for tensor in kept):
        return [tensor.view(-1).numpy() for tensor in kept]
    return [tensor.numpy() for tensor in kept]


def _is_numpys(dtype: torch.dtype) -> bool:
    return dtype in (torch.float32, torch.float64, torch.int64, torch.bool)


def _elementwise(function: Any) -> Maker:
    def make(output: Tensor, *operands: Any, **options: Any) -> list[Call] | None:
        arrays = None if options else _operands(output, *operands)
        if arrays is None:
            return None
        if function in (np.maximum, np.minimum):  # `out` by keyword; others are faster with it by position
            return [partial(function, *arrays[:-1], out=arrays[-1])]
        return [partial(function, *arrays)]

    return make


def _in_turn(*steps: tuple[Any, ...]) -> list[Call] | None:
    """Calls of several element-wise operations (function, output, *operands), one after another."""
    calls: list[Call] = []
    for function, output, *operands in steps:
        more = _elementwise(function)(output, *operands)
        if more is None:
            return None
        calls += more
    return calls


def _relu(output: Tensor, values: Tensor) -> list[Call] | None:
    small = _elementwise(np.maximum)(output, values, 0.0)
    return [partial(torch.clamp_min, values, 0, out=output)] if small is None else small  # half the time of relu


def _clamp(output: Tensor, values: Tensor, low: Any = None, high: Any = None) -> list[Call] | None:
    limits = [(function, limit) for function, limit in ((np.maximum, low), (np.minimum, high)) if limit is not None]
    return _in_turn(*[(f, output, output if i else values, limit) for i, (f, limit) in enumerate(limits)])


def _clamp_max(output: Tensor, values: Tensor, high: Any) -> list[Call] | None:
    return _clamp(output, values, high=high)


def _divided(output: Tensor, values: Tensor, divisor: Any) -> list[Call] | None:
    return _elementwise(np.divide)(output, values, divisor) if output.is_floating_point() else None


def _scaled(output: Tensor, values: Tensor, factor: float) -> list[Call] | None:
    return _copied(output, values) if factor == 1 else _elementwise(np.multiply)(output, values, factor)


def _power(output: Tensor, values: Tensor, exponent: float) -> list[Call] | None:
    if exponent == 1:
        return _copied(output, values)
    return _elementwise(np.multiply)(output, values, values) if exponent == 2 else None


def _inverse_root(output: Tensor, values: Tensor) -> list[Call] | None:
    return _in_turn((np.sqrt, output, values), (np.divide, output, 1.0, output))


def _reversed_difference(output: Tensor, values: Tensor, other: float, alpha: float = 1) -> list[Call] | None:
    return _elementwise(np.subtract)(output, other, values) if alpha == 1 else None


def _moved(output: Tensor, values: Tensor, end: Tensor, weight: Any) -> list[Call] | None:
    way = torch.empty_like(output)
    return _in_turn((np.subtract, way, end, values), (np.multiply, way, way, weight), (np.add, output, values, way))


def _with_product(output: Tensor, values: Tensor, first: Tensor, second: Tensor, value: float = 1) -> Any:
    product = torch.empty_like(output)
    scaled = () if value == 1 else ((np.multiply, product, product, value),)
    return _in_turn((np.multiply, product, first, second), *scaled, (np.add, output, values, product))


def _gradient_of_tanh(output: Tensor, gradient: Tensor, result: Tensor) -> list[Call] | None:
    slope = torch.empty_like(output)
    slopes = (np.multiply, slope, result, result), (np.subtract, slope, 1.0, slope)
    return _in_turn(*slopes, (np.multiply, output, gradient, slope))


def _gradient_of_relu(output: Tensor, gradient: Tensor, values: Tensor, threshold: float) -> list[Call] | None:
    above, slope = torch.empty_like(output, dtype=torch.bool), torch.empty_like(output)
    calls = _elementwise(np.greater)(above, values, threshold)
    more = _elementwise(np.multiply)(output, gradient, slope)
    return None if calls is None or more is None else [*calls, partial(np.copyto, slope.numpy(), above.numpy()), *more]


def _chosen(output: Tensor, condition: Tensor, yes: Tensor, no: Tensor) -> list[Call] | None:
    if len({output.dtype, yes.dtype, no.dtype}) > 1 or not _is_numpys(output.dtype) or output.numel() > MASKED_NUMBERS:
        return None
    kept = output.numpy()
    return [partial(np.copyto, kept, no.numpy()), partial(np.copyto, kept, yes.numpy(), where=condition.numpy())]


def _filled(value: Any) -> Maker:
    return lambda output, *args, **options: [partial(output.fill_, value)]


def _copied(output: Tensor, values: Tensor, **options: Any) -> list[Call] | None:
    if not (_is_numpys(output.dtype) and _is_numpys(values.dtype)):
        return None
    return [partial(np.copyto, output.numpy(), values.numpy(), casting="unsafe")]


def _masked(output: Tensor, values: Tensor, mask: Tensor, value: float) -> list[Call] | None:
    if not _is_numpys(output.dtype) or output.numel() > MASKED_NUMBERS:
        return None
    kept = output.numpy()
    return [partial(np.copyto, kept, values.numpy()), partial(np.copyto, kept, value, where=mask.numpy())]


def _part_of_zeros(view: Callable[..., Tensor]) -> Maker:
    """Returns the maker of a view's gradient: zeros but for the part that it shows."""

    def make(output: Tensor, gradient: Tensor, sizes: Any, *where: Any) -> list[Call]:
        return [output.zero_, partial(view(output, *where).copy_, gradient)]

    return make


def _gathered(output: Tensor, values: Tensor, dim: int, index: Tensor, **options: Any) -> list[Call] | None:
    if options or values.ndim != 2 or dim % 2 != 1 or not values.is_contiguous() or not _is_numpys(values.dtype):
        return None
    if not (index.is_contiguous() and output.is_contiguous()) or len(index) != len(values):
        return None
    width, places = values.shape[1], np.empty(index.shape, np.int64)
    first = np.repeat(np.arange(len(values))[:, None] * width, index.shape[1], 1)
    flat, into = values.view(-1).numpy(), output.numpy()
    return [partial(np.add, first, index.numpy(), places), partial(flat.take, places, None, into, "wrap")]


def _selected(output: Tensor, values: Tensor, dim: int, index: Tensor) -> list[Call] | None:
    if values.dtype is torch.bfloat16 or not output.is_contiguous():
        return None
    return [partial(values.numpy().take, index.numpy(), dim, output.numpy(), "wrap")]


def _scattered(output: Tensor, values: Tensor, dim: int, index: Tensor, value: float) -> list[Call] | None:
    if output.ndim != 2 or dim % 2 != 1:
        return None
    kept, places = output.numpy(), (np.arange(len(output))[:, None], index.numpy())
    return [partial(np.copyto, kept, values.numpy()), partial(kept.__setitem__, places, value)]


# --- products -------------------------------------------------------------------------------------------------------


def _product(output: Tensor, rows: Tensor, matrix: Tensor) -> list[Call] | None:
    if not output.is_floating_point() or not _is_numpys(output.dtype):
        return None
    if len(matrix) == 1:  # each number is one product
        return _elementwise(np.multiply)(output, rows, matrix) or [partial(torch.mul, rows, matrix, out=output)]
    if _is_large(rows, matrix):
        return _large_product(output, rows, matrix)
    x, w, y = rows.numpy(), matrix.numpy(), output.numpy()
    if len(rows) == 1:  # vectors: less to check than with matrices
        return [partial(w.T.dot, x[0], y[0])]
    if not y.flags.c_contiguous:
        return None
    return [partial(np.matmul if x.strides[1] > x.strides[0] else np.dot, x, w, y)]


def _large_product(output: Tensor, rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> list[Call]:
    """Computes the product by torch. A narrow result is computed transposed: kernels are fast for long rows only."""
    if len(output) <= output.shape[1] or output.shape[1] >= NARROW or not output.is_contiguous():
        added = [] if bias is None else [partial(torch.add, output, bias, out=output)]
        return [partial(torch.mm, rows, matrix, out=output), *added]
    turned, into = output.new_empty(output.shape[::-1]), output.numpy()
    turn = partial(np.copyto, into) if bias is None else partial(np.add, bias.numpy(), out=into)
    return [partial(torch.mm, matrix.t(), rows.t(), out=turned), partial(turn, turned.t().numpy())]


def _affine(output: Tensor, bias: Tensor, rows: Tensor, matrix: Tensor, **options: Any) -> list[Call] | None:
    if options or bias.dtype != output.dtype:
        return None
    if _is_large(rows, matrix):
        return _large_product(output, rows, matrix, bias) if _is_numpys(output.dtype) else None
    calls = _product(output, rows, matrix)
    if calls is None:
        return None
    y = output.numpy()[0] if len(rows) == 1 and bias.ndim == 1 else output.numpy()
    return [*calls, partial(np.add, y, bias.numpy(), y)]


def _is_large(rows: Tensor, matrix: Tensor) -> bool:
    return len(rows) > 1 and len(matrix) > 1 and len(rows) * matrix.numel() > TORCH_PRODUCT


def _stacked_product(output: Tensor, first: Tensor, second: Tensor) -> list[Call] | None:
    if not _is_numpys(output.dtype):
        return None
    if first.shape[1] == 1:  # one row by a matrix of its own: as that matrix by a column
        return [partial(np.matmul, second.mT.numpy(), first.mT.numpy(), output.mT.numpy())]
    return [partial(np.matmul, first.numpy(), second.numpy(), output.numpy())]


# --- along dimensions -----------------------------------------------------------------------------------------------


def _best(output: Tensor, values: Tensor, dim: int | None = None, keepdim: bool = False) -> list[Call] | None:
    return None if dim is None else [partial(values.numpy().argmax, dim, output.numpy(), keepdims=keepdim)]


def _reduced(function: Any, mean: bool = False) -> Maker:
    def make(
        output: Tensor, values: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, **options: Any
    ) -> list[Call] | None:
        if options or not _is_numpys(output.dtype) or values.dtype != output.dtype or values.numel() >= TORCH_NUMBERS:
            return None
        along = tuple(dim or range(values.ndim))
        count = np.array(math.prod(values.shape[i] for i in along), values.numpy().dtype)
        divided = [partial(np.divide, output.numpy(), count, output.numpy())] if mean else []
        if function is np.add.reduce and output.is_floating_point() and values.is_contiguous():
            ones, total = torch.ones(values.shape[0]).to(values.dtype).numpy(), output.view(-1).numpy()
            if along == (0,) and values.ndim == 2:  # as a product with a row of ones, which takes a third of the time
                return [partial(ones.dot, values.numpy(), total), *divided]
        return [partial(function, values.numpy(), along, None, output.numpy(), keepdim), *divided]

    return make


def _length(output: Tensor, values: Tensor, *args: Any, **options: Any) -> list[Call] | None:
    if args or options or not values.is_contiguous() or not _is_numpys(output.dtype) or output.dtype != values.dtype:
        return None
    return _dot(output, values.view(-1), values.view(-1), np.sqrt)


def _dot(output: Tensor, first: Tensor, second: Tensor, *then: Any) -> list[Call] | None:
    if not _is_numpys(output.dtype):
        return None
    total = output.numpy()
    return [partial(first.numpy().dot, second.numpy(), total), *[partial(function, total, total) for function in then]]


def _joined(output: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> list[Call] | None:
    if not _is_numpys(output.dtype) or any(t.dtype != output.dtype or t.ndim == 0 for t in tensors):
        return None
    return [partial(np.concatenate, [t.numpy() for t in tensors], dim, output.numpy())]


def _stacked(output: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> list[Call] | None:
    return _joined(output, [tensor.unsqueeze(dim) for tensor in tensors], dim)


# --- random numbers -------------------------------------------------------------------------------------------------


def _drawn(method: str) -> Maker:
    """Draw into the output from torch's generator: the same numbers as for a new tensor of that shape."""

    def make(output: Tensor, *args: Any, **options: Any) -> list[Call] | None:
        return None if options.get("generator") is not None else [getattr(output, method)]

    return make


def _drawn_in_place(method: str) -> Maker:
    def make(output: Tensor, *args: Any, generator: Any = None) -> list[Call]:
        return [partial(getattr(output, method), *args[1:], generator=generator)]

    return make


_TABLE: dict[str, Maker] = {
    "mm.default": _product,
    "addmm.default": _affine,
    "bmm.default": _stacked_product,
    "dot.default": _dot,
    "add.Tensor add_.Tensor": _elementwise(np.add),
    "sub.Tensor sub_.Tensor": _elementwise(np.subtract),
    "mul.Tensor mul_.Tensor": _elementwise(np.multiply),
    "div.Tensor div_.Tensor div.Scalar": _divided,
    "mul.Scalar": _scaled,
    "rsub.Scalar": _reversed_difference,
    "neg.default": _elementwise(np.negative),
    "exp.default": _elementwise(np.exp),
    "log.default": _elementwise(np.log),
    "tanh.default": _elementwise(np.tanh),
    "sqrt.default": _elementwise(np.sqrt),
    "rsqrt.default": _inverse_root,
    "pow.Tensor_Scalar": _power,
    "abs.default": _elementwise(np.abs),
    "sign.default sgn.default": _elementwise(np.sign),
    "cos.default": _elementwise(np.cos),
    "minimum.default": _elementwise(np.minimum),
    "maximum.default": _elementwise(np.maximum),
    "lt.Tensor lt.Scalar": _elementwise(np.less),
    "le.Tensor le.Scalar": _elementwise(np.less_equal),
    "gt.Tensor gt.Scalar": _elementwise(np.greater),
    "ge.Tensor ge.Scalar": _elementwise(np.greater_equal),
    "eq.Tensor eq.Scalar": _elementwise(np.equal),
    "bitwise_not.default": _elementwise(np.invert),
    "logical_and.default logical_and_.default": _elementwise(np.logical_and),
    "lerp.Scalar lerp_.Scalar lerp.Tensor lerp_.Tensor": _moved,
    "addcmul.default addcmul_.default": _with_product,
    "relu.default": _relu,
    "threshold_backward.default": _gradient_of_relu,
    "tanh_backward.default": _gradient_of_tanh,
    "clamp.default clamp.Tensor clamp_min.default": _clamp,
    "clamp_max.default": _clamp_max,
    "where.self": _chosen,
    "masked_fill.Scalar masked_fill_.Scalar": _masked,
    "scatter.value": _scattered,
    "gather.default": _gathered,
    "index_select.default": _selected,
    "_to_copy.default clone.default": _copied,
    "copy_.default": lambda output, place, values, *args: _copied(output, values),
    "slice_backward.default": _part_of_zeros(aten.slice.Tensor),
    "select_backward.default": _part_of_zeros(torch.select),
    "argmax.default": _best,
    "sum.default sum.dim_IntList": _reduced(np.add.reduce),
    "mean.default mean.dim": _reduced(np.add.reduce, mean=True),
    "amax.default": _reduced(np.maximum.reduce),
    "amin.default": _reduced(np.minimum.reduce),
    "linalg_vector_norm.default": _length,
    "cat.default": _joined,
    "stack.default": _stacked,
    "zeros.default zeros_like.default new_zeros.default": _filled(0),
    "ones.default ones_like.default": _filled(1),
    "empty.memory_format empty_like.default new_empty.default": lambda output, *args, **options: [],
    "randn.default randn.generator randn_like.default": _drawn("normal_"),
    "rand.default rand.generator rand_like.default": _drawn("uniform_"),
    "exponential_.default": _drawn_in_place("exponential_"),
    "normal_.default": _drawn_in_place("normal_"),
    "uniform_.default": _drawn_in_place("uniform_"),
}
MAKERS: dict[Any, Maker] = {
    getattr(getattr(aten, name.partition(".")[0]), name.partition(".")[2]): maker
    for names, maker in _TABLE.items()
    for name in names.split()
}
