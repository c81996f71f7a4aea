"""Operations of torch as calls of numpy, on views of the same memory.

An operation becomes calls without arguments, which compute its output again from the current contents of its
arguments, into the tensor that it returned when it was recorded. Operations without a counterpart here run in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from polyak.nn.backends.recording import Operation

aten = torch.ops.aten

TORCH_PRODUCT = 250_000
"""Multiplications in one product of matrices from which torch is faster than numpy, though it costs 2 us more to call:
numpy has fast kernels for small matrices only. Measured; a single row is always computed by numpy."""

Call = Callable[[], Any]
Maker = Callable[..., "list[Call] | None"]
"""(output, *arguments) of an operation -> calls; ``None``: torch has to do it."""


def calls_of(step: Operation) -> list[Call]:
    """The calls that compute the outputs of a step again."""
    args, kwargs = tree_map(_plain, (tuple(step.args), dict(step.kwargs)))
    outputs = [output.detach() for output in step.outputs]
    maker = MAKERS.get(step.operation)
    found = None if maker is None or len(outputs) != 1 else maker(outputs[0], *args, **kwargs)
    return _by_torch(step, outputs, args, kwargs) if found is None else found


def _plain(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


def _by_torch(step: Operation, outputs: list[Tensor], args: Any, kwargs: Any) -> list[Call]:
    operation = step.operation
    if step.in_place:
        return [partial(operation, *args, **kwargs)]
    into = getattr(operation.overloadpacket, "out", None)
    if into is not None and len(outputs) == 1 and not step.random:
        call = partial(into, *args, **kwargs, out=outputs[0])
        try:
            call()
        except (RuntimeError, TypeError):
            pass  # that of another overload
        else:
            return [call]

    def compute() -> None:
        found = operation(*args, **kwargs)
        for kept, now in zip(outputs, found if isinstance(found, list | tuple) else (found,), strict=True):
            kept.copy_(now)

    return [compute]


# --- what the arguments are in numpy --------------------------------------------------------------------------------


def _operands(output: Tensor, *operands: Any) -> list[np.ndarray] | None:
    """Operands of one element-wise operation, the output last; ``None``: of several types.

    Arrays of one shape are flattened, and numbers become arrays: both are faster.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    dtype = tensors[0].dtype
    if any(tensor.dtype != dtype for tensor in tensors) or not _is_numpys(dtype):
        return None
    if output.dtype not in (dtype, torch.bool):
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


def _relu(output: Tensor, values: Tensor) -> list[Call] | None:
    return _elementwise(np.maximum)(output, values, 0.0)


def _clamp(output: Tensor, values: Tensor, low: Any = None, high: Any = None) -> list[Call] | None:
    calls: list[Call] = []
    for function, limit in ((np.maximum, low), (np.minimum, high)):
        if limit is None:
            continue
        more = _elementwise(function)(output, output if calls else values, limit)
        if more is None:
            return None
        calls += more
    return calls


def _clamp_max(output: Tensor, values: Tensor, high: Any) -> list[Call] | None:
    return _clamp(output, values, high=high)


def _divided(output: Tensor, values: Tensor, divisor: Any) -> list[Call] | None:
    return _elementwise(np.divide)(output, values, divisor) if output.is_floating_point() else None


def _scaled(output: Tensor, values: Tensor, factor: float) -> list[Call] | None:
    return _copied(output, values) if factor == 1 else _elementwise(np.multiply)(output, values, factor)


def _copied(output: Tensor, values: Tensor, **options: Any) -> list[Call] | None:
    if not (_is_numpys(output.dtype) and _is_numpys(values.dtype)):
        return None
    return [partial(np.copyto, output.numpy(), values.numpy(), casting="unsafe")]


def _masked(output: Tensor, values: Tensor, mask: Tensor, value: float) -> list[Call]:
    kept = output.numpy()
    return [partial(np.copyto, kept, values.numpy()), partial(np.copyto, kept, value, where=mask.numpy())]


def _scattered(output: Tensor, values: Tensor, dim: int, index: Tensor, value: float) -> list[Call] | None:
    if output.ndim != 2 or dim % 2 != 1:
        return None
    kept, places = output.numpy(), (np.arange(len(output))[:, None], index.numpy())
    return [partial(np.copyto, kept, values.numpy()), partial(kept.__setitem__, places, value)]


# --- products -------------------------------------------------------------------------------------------------------


def _product(output: Tensor, rows: Tensor, matrix: Tensor) -> list[Call] | None:
    if not output.is_floating_point() or not _is_numpys(output.dtype):
        return None
    if len(rows) > 1 and len(rows) * matrix.numel() > TORCH_PRODUCT:
        return [partial(torch.mm, rows, matrix, out=output)]
    x, w, y = rows.numpy(), matrix.numpy(), output.numpy()
    if len(rows) == 1:  # vectors: less to check than with matrices
        return [partial(w.T.dot, x[0], y[0])]
    return [partial(x.dot, w, y)]


def _affine(output: Tensor, bias: Tensor, rows: Tensor, matrix: Tensor, **options: Any) -> list[Call] | None:
    if options:
        return None
    if len(rows) > 1 and len(rows) * matrix.numel() > TORCH_PRODUCT:
        return [partial(torch.addmm, bias, rows, matrix, out=output)]
    calls = _product(output, rows, matrix)
    if calls is None:
        return None
    y = output.numpy()[0] if len(rows) == 1 and bias.ndim == 1 else output.numpy()
    return [*calls, partial(np.add, y, bias.numpy(), y)]


def _stacked_product(output: Tensor, first: Tensor, second: Tensor) -> list[Call] | None:
    if not _is_numpys(output.dtype):
        return None
    if first.shape[1] == 1:  # one row by a matrix of its own: as that matrix by a column
        return [partial(np.matmul, second.mT.numpy(), first.mT.numpy(), output.mT.numpy())]
    return [partial(np.matmul, first.numpy(), second.numpy(), output.numpy())]


# --- along dimensions -----------------------------------------------------------------------------------------------


def _best(output: Tensor, values: Tensor, dim: int | None = None, keepdim: bool = False) -> list[Call] | None:
    return None if dim is None else [partial(values.numpy().argmax, dim, output.numpy(), keepdims=keepdim)]


def _reduced(function: Any) -> Maker:
    def make(
        output: Tensor, values: Tensor, dim: Sequence[int] | None, keepdim: bool = False, **options: Any
    ) -> list[Call] | None:
        if options or not dim or not _is_numpys(output.dtype) or values.dtype != output.dtype:
            return None
        return [partial(function, values.numpy(), axis=tuple(dim), out=output.numpy(), keepdims=keepdim)]

    return make


def _joined(function: Any) -> Maker:
    def make(output: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> list[Call] | None:
        if not _is_numpys(output.dtype) or any(t.dtype != output.dtype or t.ndim == 0 for t in tensors):
            return None
        return [partial(function, [t.numpy() for t in tensors], dim, output.numpy())]

    return make


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


MAKERS: dict[Any, Maker] = {
    aten.mm.default: _product,
    aten.addmm.default: _affine,
    aten.bmm.default: _stacked_product,
    aten.add.Tensor: _elementwise(np.add),
    aten.sub.Tensor: _elementwise(np.subtract),
    aten.mul.Tensor: _elementwise(np.multiply),
    aten.div.Tensor: _divided,
    aten.mul.Scalar: _scaled,
    aten.exp.default: _elementwise(np.exp),
    aten.log.default: _elementwise(np.log),
    aten.tanh.default: _elementwise(np.tanh),
    aten.sqrt.default: _elementwise(np.sqrt),
    aten.abs.default: _elementwise(np.abs),
    aten.sign.default: _elementwise(np.sign),
    aten.cos.default: _elementwise(np.cos),
    aten.lt.Tensor: _elementwise(np.less),
    aten.eq.Tensor: _elementwise(np.equal),
    aten.gt.Scalar: _elementwise(np.greater),
    aten.bitwise_not.default: _elementwise(np.invert),
    aten.relu.default: _relu,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.clamp_max.default: _clamp_max,
    aten.masked_fill.Scalar: _masked,
    aten.scatter.value: _scattered,
    aten._to_copy.default: _copied,
    aten.clone.default: _copied,
    aten.argmax.default: _best,
    aten.mean.dim: _reduced(np.mean),
    aten.sum.dim_IntList: _reduced(np.sum),
    aten.amax.default: _reduced(np.amax),
    aten.cat.default: _joined(np.concatenate),
    aten.stack.default: _joined(np.stack),
    aten.empty.memory_format: lambda output, *args, **options: [],
    aten.empty_like.default: lambda output, *args, **options: [],
    aten.randn.default: _drawn("normal_"),
    aten.randn.generator: _drawn("normal_"),
    aten.rand.default: _drawn("uniform_"),
    aten.rand.generator: _drawn("uniform_"),
    aten.randn_like.default: _drawn("normal_"),
    aten.rand_like.default: _drawn("uniform_"),
    aten.exponential_.default: _drawn_in_place("exponential_"),
    aten.normal_.default: _drawn_in_place("normal_"),
    aten.uniform_.default: _drawn_in_place("uniform_"),
}
