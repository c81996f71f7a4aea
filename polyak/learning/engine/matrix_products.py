"""The choice of the library for a compiled program's matrix products, torch's BLAS or oneDNN, by measurement.

torch multiplies float32 matrices with the BLAS that it was built with, usually MKL. oneDNN, which torch includes, is
twice as fast on processors whose widest instructions MKL leaves unused, and slower on others. So each shape of a
product is measured with both, once per machine, and the decision is stored on disk: a training gives equal results
every time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from polyak.learning.engine.cache import Measurements, machine
from polyak.learning.engine.machine_speed import fastest

aten = torch.ops.aten

SMALLEST = 2e6
"""Floating-point operations of a product below which call overhead exceeds the arithmetic."""
MARGIN = 1.15
"""Required speed-up to choose oneDNN, so that noise does not decide."""
SECONDS = 0.01
"""Measuring time per library and shape."""
STORED_AS = "products"


class MatrixProduct(NamedTuple):
    """``a @ b``, with or without a bias added to each row."""

    shape: tuple[int, int, int]
    """Rows of ``a``, columns of ``a``, columns of ``b``."""
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    """Strides of ``a`` and ``b``."""
    bias: bool

    @property
    def flops(self) -> float:
        """The number of floating-point operations."""
        m, k, n = self.shape
        return 2.0 * m * k * n


Faster = Callable[[MatrixProduct], bool]
"""Whether oneDNN computes a product faster."""


def use_faster(graph: GraphModule, faster: Faster | None = None) -> int:
    """Replace large float32 products of a graph by oneDNN's if that library is faster.

    For torch's products, the bias becomes a separate operation, which the compiler fuses with the next activation:
    torch would write the bias into every row of the result before it multiplies.

    Args:
        graph: of tensors on the CPU, changed in place; its nodes carry example values, as ``trace`` leaves them.
        faster: decides for each product; None: :func:`measured`.

    Returns:
        The number of products that oneDNN computes.
    """
    faster = faster or measured()
    changed = 0
    for node in list(graph.graph.nodes):
        if (parts := _parts(node)) is None:
            continue
        bias, a, b = parts
        x, y = a.meta["val"], b.meta["val"]
        product = MatrixProduct((*x.shape, y.shape[1]), (x.stride(), y.stride()), bias is not None)
        with graph.graph.inserting_before(node):
            if torch.backends.mkldnn.is_available() and product.flops >= SMALLEST and faster(product):
                new = graph.graph.call_function(torch.ops.polyak.product.default, (a, b, bias))
                changed += 1
            elif bias is not None:
                alone = graph.graph.call_function(torch.ops.polyak.unbiased.default, (a, b))
                alone.meta = dict(node.meta)
                new = graph.graph.call_function(aten.add.Tensor, (alone, bias))
            else:
                continue
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
    graph.recompile()
    return changed


def _parts(node: Node) -> tuple[Node | None, Node, Node] | None:
    """Returns bias, left and right factor of a product of float32 matrices; None for other nodes."""
    if node.op != "call_function" or node.kwargs or node.target not in (aten.mm.default, aten.addmm.default):
        return None
    *bias, a, b = (part for part in node.args if isinstance(part, Node))
    tensors = [part.meta["val"] for part in (*bias, a, b)]
    if any(t.dtype != torch.float32 for t in tensors):
        return None
    if not bias:
        return None, a, b
    return (bias[0], a, b) if tensors[0].dim() == 1 else None


def undo_unbiased(graph: GraphModule) -> None:
    """Restore ``aten.mm`` for a compiler without support for ``unbiased``: it then fuses product and bias."""
    for node in graph.graph.nodes:
        if node.target is torch.ops.polyak.unbiased.default:
            node.target = aten.mm.default
    graph.recompile()


# -- measurement -------------------------------------------------------------------------------------------------------


def measured() -> Faster:
    """Returns decisions by measurement, for the present number of threads."""
    known = Measurements(STORED_AS)

    def faster(product: MatrixProduct) -> bool:
        what = f"{_machine()} {torch.get_num_threads()} threads: {tuple(product)}"
        return bool(known.of(what, lambda: _measure(product), _sound)["onednn"])

    return faster


def _measure(product: MatrixProduct) -> dict[str, Any]:
    """Returns the microseconds of both libraries, and whether oneDNN is chosen."""
    ours, theirs = _seconds(product)
    return {"torch_us": round(ours * 1e6, 1), "onednn_us": round(theirs * 1e6, 1), "onednn": theirs * MARGIN < ours}


def _sound(fact: Any) -> bool:
    return isinstance(fact, dict) and isinstance(fact.get("onednn"), bool)


@cache
def _machine() -> str:
    return hashlib.sha256(repr(machine()).encode()).hexdigest()[:12]


@torch.no_grad()
def _seconds(product: MatrixProduct) -> tuple[float, float]:
    """Returns the seconds of torch and oneDNN for a product."""
    m, k, n = product.shape
    a, b = (_ones(shape, stride) for shape, stride in zip(((m, k), (k, n)), product.strides, strict=True))
    bias = torch.ones(n) if product.bias else None
    ours = fastest(lambda: torch.mm(a, b) if bias is None else torch.addmm(bias, a, b), SECONDS)
    return ours, fastest(lambda: onednn(a, b, bias), SECONDS)


def _ones(shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.ones(span).as_strided(shape, strides)


# -- the operator ------------------------------------------------------------------------------------------------------


def onednn(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """Returns oneDNN's product ``a @ b + bias``. a [m, k], b [k, n], bias [n] or None -> [m, n]

    It is fast for contiguous rows only, so a transposed ``a`` is copied; ``b`` may be transposed.
    """
    return torch.ops.mkldnn._linear_pointwise(a.contiguous(), b.t(), bias, "none", [], "")


_library = torch.library.Library("polyak", "DEF")
_library.define("product(Tensor a, Tensor b, Tensor? bias) -> Tensor")
_library.impl("product", onednn, "CPU")
_library.impl("product", lambda a, b, bias: a.new_empty(a.shape[0], b.shape[1]), "Meta")
_library.define("unbiased(Tensor a, Tensor b) -> Tensor")  # aten.mm, which is not fused with a bias
_library.impl("unbiased", torch.mm, "CPU")
_library.impl("unbiased", lambda a, b: a.new_empty(a.shape[0], b.shape[1]), "Meta")


@cache
def teach_compiler() -> bool:
    """Let TorchInductor call oneDNN directly, which it supports for constant weights only, and keep biases separate.

    Returns:
        False if this release of torch has other internals; calls of oneDNN then have more overhead.
    """
    try:
        from torch._inductor.ir import ExternKernel, FixedLayout, TensorBox
        from torch._inductor.lowering import lowerings, register_lowering
        from torch._inductor.mkldnn_ir import LinearUnary
    except (ImportError, AttributeError):
        return False

    @register_lowering(torch.ops.polyak.product.default, type_promotion_kind=None)
    def product(a: TensorBox, b: TensorBox, bias: TensorBox | None) -> TensorBox:
        x = ExternKernel.require_contiguous(ExternKernel.realize_input(a))
        weight = ExternKernel.realize_input(lowerings[aten.permute.default](b, [1, 0]))
        layout = FixedLayout(torch.device("cpu"), x.get_dtype(), [x.get_size()[0], weight.get_size()[0]])
        if bias is None:
            kernel = LinearUnary(layout, [x, weight], (None, "none", [-1], ""))
        else:
            kernel = LinearUnary(layout, [x, weight, ExternKernel.realize_input(bias)], ("none", [-1], ""))
        return TensorBox.create(kernel)

    @register_lowering(torch.ops.polyak.unbiased.default, type_promotion_kind=None)
    def unbiased(a: TensorBox, b: TensorBox) -> TensorBox:
        return lowerings[aten.mm.default](a, b)

    return True
