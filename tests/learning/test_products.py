"""Products of matrices: handed to oneDNN where it is faster, with the same numbers, and once decided for ever."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from polyak import SAC
from polyak.learning.engine import cache, program
from polyak.learning.engine import matrix_products as products
from polyak.learning.engine.matrix_products import MatrixProduct, measured, undo_unbiased, use_faster
from tests.tolerance import bound, drift

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def graph_of(*inputs: Tensor) -> GraphModule:
    def layers(x: Tensor, w: Tensor, b: Tensor, small: Tensor) -> list[Tensor]:
        y = torch.addmm(b, x, w.t())
        return [y, y.t() @ x, y @ w, small @ small, x.double() @ w.double().t()]

    return make_fx(layers, tracing_mode="fake")(*inputs)


def example() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator) for shape in ((128, 160), (96, 160), (96,), (8, 8)))


def assert_equal_sums(ours: Tensor, theirs: Tensor) -> None:
    """Products of up to 160 terms, in which the layers' outputs (below 60) are multiplied once more."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=bound(2 * 160, size=60))


@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_operator_multiplies(a_transposed: bool, b_transposed: bool, bias: bool) -> None:
    a = torch.randn(30, 50).t() if a_transposed else torch.randn(50, 30)
    b = torch.randn(20, 30).t() if b_transposed else torch.randn(30, 20)
    c = torch.randn(20) if bias else None
    expected = (a.double() @ b.double()) + (0 if c is None else c.double())
    product = torch.ops.polyak.product(a, b, c)
    near = bound(31, size=(a.abs() @ b.abs()).max().item() + (0 if c is None else c.abs().max().item()))
    torch.testing.assert_close(product.double(), expected, rtol=0, atol=near)


def test_large_float32_products_are_replaced_and_nothing_else() -> None:
    inputs = example()
    graph = graph_of(*inputs)
    before = graph(*inputs)
    asked: list[MatrixProduct] = []
    assert use_faster(graph, lambda product: asked.append(product) is None) == 3
    assert [p.shape for p in asked] == [(128, 160, 96), (96, 128, 160), (128, 96, 160)]
    assert [p.bias for p in asked] == [True, False, False]
    targets = [node.target for node in graph.graph.nodes]
    assert targets.count(torch.ops.polyak.product.default) == 3
    assert targets.count(torch.ops.aten.mm.default) == 2  # the small one and the one of doubles
    for ours, theirs in zip(graph(*inputs), before, strict=True):
        assert_equal_sums(ours, theirs)


def test_where_torch_is_faster_biases_are_added_afterwards() -> None:
    arguments = example()
    graph, expected = graph_of(*arguments), graph_of(*arguments)(*arguments)
    assert use_faster(graph, lambda product: False) == 0
    assert "aten.addmm" not in graph.code
    assert "polyak.unbiased" in graph.code
    for ours, theirs in zip(graph(*arguments), expected, strict=True):
        assert_equal_sums(ours, theirs)
    undo_unbiased(graph)
    assert "polyak.unbiased" not in graph.code
    for ours, theirs in zip(graph(*arguments), expected, strict=True):
        assert_equal_sums(ours, theirs)


QUICK, SLOW = (MatrixProduct((64, 64, 64), ((64, 1), b), False) for b in ((64, 1), (1, 64)))


def forbid_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_seconds", lambda product: pytest.fail("measured again"))


def test_the_first_measurement_decides_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    monkeypatch.setattr(products, "_seconds", lambda product: (1.0, 0.5 if product == QUICK else 0.95))
    first = measured()
    assert first(QUICK)
    assert not first(SLOW)  # by too little
    forbid_measuring(monkeypatch)
    for faster in (first, measured()):
        assert faster(QUICK)
        assert not faster(SLOW)
    assert len(cache.recall(products.STORED_AS)) == 2
    monkeypatch.setattr(products, "_seconds", lambda product: (1.0, 2.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 17)
    assert not first(QUICK)  # with other threads it is another question


def test_a_broken_or_read_only_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    (tmp_path / "products.json").write_text("{broken")
    assert cache.recall("products") == {}
    cache.store("products", {"a": 1})
    cache.store("products", {"b": 2})
    assert cache.recall("products") == {"a": 1, "b": 2}
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path / "file"))
    cache.store("products", {"a": 1})
    assert cache.recall("products") == {}


@pytest.mark.slow
def test_compiled_with_onednn_learns_as_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    given: list[int] = []
    monkeypatch.setattr(program, "use_faster", lambda graph: given.append(use_faster(graph, lambda product: True)))

    def train(compile: bool) -> SAC:
        options = {"policy_kwargs": {"net_arch": [128, 128]}, "learning_starts": 20, "batch_size": 128}
        model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=200, device="cpu", seed=0, compile=compile, **options)
        return model.learn(41)

    ours, theirs = train(True), train(False)
    assert given
    assert given[0] > 10
    assert ours.engine.status == "compiled"
    for name, tensor in ours.learner.state_dict().items():
        near = drift(theirs.learner.steps, 3e-4, terms=4 * 128)
        torch.testing.assert_close(tensor, theirs.learner.state_dict()[name], rtol=0, atol=near)
