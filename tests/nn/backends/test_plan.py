"""Plans: a flat graph again and again, on memory that is allocated once."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from polyak.nn.backends import plan
from polyak.nn.backends.plan import Plan
from polyak.nn.backends.tracing import trace
from tests.tolerance import bound


def planned(function: Callable[..., Any], arguments: Sequence[Tensor], fixed: Sequence[Tensor] = ()) -> Plan:
    return Plan(trace(function, arguments, [], {}), arguments, set(map(id, fixed)))


def assert_repeats(function: Callable[..., Any], *inputs: Tensor, calls: int | None = None) -> None:
    """The plan gives what the function gives, for inputs in other tensors too, and keeps what it gave before."""
    made = planned(lambda *tensors: [function(*tensors)], inputs)
    given, kept = [], []
    for _ in range(3):
        others = [torch.randn(t.shape) if t.is_floating_point() else torch.randint(2, t.shape) for t in inputs]
        given.append(function(*[other.clone() for other in others]))
        kept += made(others)
    for ours, theirs in zip(kept, given, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert calls is None or len(made.calls) == calls


def test_it_computes_what_is_needed_once() -> None:
    assert_repeats(lambda x: (x.exp(), x * 2)[1], torch.zeros(3, 4), calls=1)
    assert_repeats(lambda x: x.exp() + x.exp(), torch.zeros(3, 4), calls=2)
    assert_repeats(lambda x: x + torch.arange(4).float().exp().sum(), torch.zeros(3, 4), calls=1)
    assert_repeats(lambda x: x.t()[1:].t() * 2, torch.zeros(3, 4), calls=1)
    assert_repeats(lambda v, x: (v @ x) / x.sum(), torch.zeros(3), torch.zeros(3, 4))  # which squeezes in place


def test_what_is_changed_between_is_computed_again() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        first = y.exp()
        y[1:].add_(x[1:])
        return first + y.exp()

    assert_repeats(function, torch.zeros(3, 4))


def test_constants_that_are_written_into_begin_as_they_were() -> None:
    def function(x: Tensor) -> Tensor:
        zeros, ones = torch.zeros(4), torch.ones_like(x)
        zeros[1:3] += x[:2]
        ones.mul_(2)
        return zeros[:3] + ones

    assert_repeats(function, torch.zeros(3))


def test_results_leave_their_memory_to_later_ones() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(20):
            x = x.exp().tanh()
        return x

    made = planned(lambda x: [function(x)], [torch.zeros(2_000)])
    arrays = {call.args[-1].ctypes.data for call in made.calls}
    assert len(made.calls) == 40
    assert len(arrays) == 1  # that of the operand, which is not needed any more
    assert_repeats(function, torch.zeros(2_000))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.where(x.exp() > y.exp(), x.exp() * 2, y.exp() * 3),
        lambda x, y: x.exp() - x.exp()[:1],
        lambda x, y: (x.exp() @ y.exp().t()) * (x.exp() @ y.exp().t()).t(),
        lambda x, y: (x.exp().tanh() + y.exp().sum(0)) * x.exp(),
        lambda x, y: (x.exp() > 1).logical_and((y.exp() > 1).logical_not()).float() + y.exp().double().float(),
        lambda x, y: torch.zeros_like(x.exp()).add_(y) + torch.ones_like(y) * x.tanh(),
    ],
)
def test_no_result_takes_the_place_of_what_is_still_read(function: Any) -> None:
    assert_repeats(function, torch.zeros(4, 4), torch.zeros(4, 4))


@pytest.mark.parametrize("shape", [(256, 400, 300), (400, 256, 23), (256, 300, 6), (300, 1, 256), (6, 256, 300)])
def test_large_products(shape: tuple[int, int, int]) -> None:
    """Wide, narrow and of one term, in either layout, with a bias and a relu."""
    rows, terms, columns = shape
    x, w, b = torch.randn(terms, rows), torch.randn(columns, terms), torch.randn(columns)

    def function(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        return [torch.addmm(b, x.t(), w.t()).relu(), x.t() @ w.t(), x.t().contiguous() @ w.t().contiguous()]

    made = planned(function, [x, w, b])
    size = float(torch.addmm(b.abs(), x.t().abs(), w.t().abs()).max())
    for ours, theirs in zip(made([x, w, b]), function(x, w, b), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound(terms + 1, size))


def test_inputs_that_stay_are_changed_in_place() -> None:
    weights, rate = torch.ones(3), torch.tensor(0.5)

    def step(w: Tensor, by: Tensor, x: Tensor) -> list[Tensor]:
        loss = (w * x).sum()
        w.sub_(by * x)
        return [loss]

    made = planned(step, [weights, rate, torch.zeros(3)], [weights, rate])
    assert weights.tolist() == [1.0, 1.0, 1.0]  # to plan changes nothing
    losses = [made([weights, rate, torch.full((3,), 2.0)])[0] for _ in range(2)]
    rate.fill_(0.0)
    losses += made([weights, rate, torch.ones(3)])
    assert [loss.item() for loss in losses] == [6.0, 0.0, -3.0]
    assert weights.tolist() == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("large", [False, True])
def test_rows_are_gathered_from_where_they_lie(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "COPIED_NUMBERS", 1)
    rows = torch.tensor([2, 0])

    def function(memory: Tensor, chosen: Tensor) -> list[Tensor]:
        found = memory.index_select(0, chosen) * 2
        return [found + memory.sum() if large else found]

    memory = torch.arange(12.0).reshape(3, 4)
    made = planned(function, [memory, rows], [rows])
    for source in (memory, memory.clone(), torch.arange(24.0).reshape(3, 8)[:, ::2]):
        source[2, 3] = 100.0  # by others, in place
        assert torch.equal(made([source, rows])[0], function(source, rows)[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: x.clone().lerp_(y, torch.tensor(0.2)),
        lambda x, y: x.addcmul(y, y, value=0.3),
        lambda x, y: (1 - x).rsqrt().nan_to_num(),
        lambda x, y: torch.where(x > y, x, y * 2),
        lambda x, y: x.gather(1, (y > 0).long()),
        lambda x, y: x.masked_fill(y > 0, 3.0),
        lambda x, y: x.index_select(1, torch.tensor([1, 1, 0])),
        lambda x, y: x.max(dim=1).values + x.sort(1).values[:, 0],
        lambda x, y: x.mean() + y.sum(0) + x.square().mean(1)[:, None].amin(0),
        lambda x, y: torch.stack([x.sum(), y.norm(), x.std()]),
        lambda x, y: torch.linalg.vector_norm(x, dim=1),
        lambda x, y: x.t() @ y + (y.t() @ x).t(),
        lambda x, y: (x[:, :1] > 0).logical_and(y[:, 1:2] <= 0).float(),
        lambda x, y: torch.nn.functional.layer_norm(x, (4,)) + y.softmax(1).log(),
        lambda x, y: torch.nn.functional.batch_norm(x, None, None, training=True),
        lambda x, y: x.bfloat16().float() + x.double().clamp(y.double() - 1, y.double() + 1).float(),
    ],
)
def test_operations_of_either_library(function: Any) -> None:
    assert_repeats(function, torch.zeros(3, 4), torch.zeros(3, 4))


@pytest.mark.parametrize("width", [3, 300])
def test_gradients(width: int) -> None:
    """Of small arrays, which numpy computes, and of large ones."""

    def gradient(x: Tensor, w: Tensor) -> Tensor:
        x = x.requires_grad_()
        hidden = (x @ w).relu() + (x @ w).tanh() + (x @ w)[:, :1].expand(-1, w.shape[1])
        chosen = torch.nn.functional.log_softmax(hidden, 1)[:, 1:]
        return torch.autograd.grad(chosen.square().mean() + chosen.abs().amax(1).sum(), x)[0]

    assert_repeats(gradient, torch.zeros(128, width), torch.zeros(width, width))
