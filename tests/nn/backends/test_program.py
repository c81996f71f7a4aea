"""Programs: what a function does to tensors, again and again, without its Python code."""

import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyak.nn.backends import recording
from polyak.nn.backends.program import TracedProgram
from polyak.nn.backends.tracing import UntraceableError


@pytest.fixture(autouse=True)
def functions_of_this_file_do_no_more_than_their_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyak.nn.backends.recording._KNOWN", recording._KNOWN | {"tests"})


def assert_repeats(function: Any, *inputs: Tensor, rounds: int = 3) -> TracedProgram:
    """The program gives what the function gives, exactly, after its inputs have changed in place."""
    program = TracedProgram(lambda: function(*inputs), inputs)
    for _ in range(rounds):
        for tensor in inputs:
            tensor.copy_(torch.randn(tensor.shape))
        torch.manual_seed(5)
        program()
        state, found = torch.get_rng_state(), program.result.clone()
        torch.manual_seed(5)
        assert torch.equal(found, function(*inputs))
        assert torch.equal(torch.get_rng_state(), state)
    return program


def test_what_is_drawn_is_drawn_though_nothing_needs_it() -> None:
    def function(x: Tensor) -> Tensor:
        torch.rand(7)
        return x + torch.randn(3, 4)

    assert_repeats(function, torch.zeros(3, 4))


def test_a_constant_that_is_written_into_begins_as_it_was() -> None:
    def function(x: Tensor) -> Tensor:
        total = torch.ones(4)
        total[1:3] += x[:2]
        return total

    assert_repeats(function, torch.zeros(3))


def test_a_view_of_a_result_that_is_written_into_later() -> None:
    def function(x: Tensor) -> Tensor:
        doubled = x * 2
        first = doubled[:1]
        doubled.add_(1)
        return first + 0

    assert_repeats(function, torch.zeros(3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(-0.5, 0.5),
        lambda x: x.clamp(max=0.5),
        lambda x: x.clamp_max(0.2).clamp_min(0.1),
        lambda x: x.t() * 2.0 + x.t() / 3,
        lambda x: torch.sub(x, x.flip(0), alpha=2),
        lambda x: (x > 0).long().argmax(1, keepdim=True),
        lambda x: x.argmax(),
        lambda x: torch.cat([x, (x + 1)[:, :1]], 1),
        lambda x: torch.stack([x, x], 2).flatten(1),
        lambda x: x.masked_fill(x > 0, -torch.inf),
        lambda x: (x > 0) & ~(x > 1),
        lambda x: x.double().cos().float(),
        lambda x: x.max(dim=1).values,
        lambda x: x.sort(descending=True).indices,
        lambda x: x.unflatten(1, (2, 2)).amax(1),
        lambda x: torch.nn.functional.layer_norm(x, (4,)),
        lambda x: x @ torch.ones(4, 2),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.where(x > 0, x, 0.0),
    ],
)
def test_operations_of_either_library(function: Any) -> None:
    assert_repeats(function, torch.zeros(3, 4))


def test_sums_and_means_agree_but_for_their_order() -> None:
    x = torch.randn(3, 4)
    for function in (lambda: x.mean(1), lambda: x.sum((0, 1), keepdim=True)):
        program = TracedProgram(function, [x])
        program()
        torch.testing.assert_close(program.result, function(), rtol=0, atol=12 * 2**-23 * float(x.abs().sum()))


# --- what it refuses --------------------------------------------------------------------------------------------------


def refused(function: Any, *inputs: Tensor) -> str:
    with pytest.raises(UntraceableError) as raised:
        TracedProgram(function, inputs)
    assert sys.getprofile() is None
    return str(raised.value)


def test_a_branch_on_values() -> None:
    x = torch.zeros(3)
    assert "depend on numbers" in refused(lambda: x if x.sum() > 0 else -x, x)
    assert "depend on numbers" in refused(lambda: x * x.max().item(), x)


def test_a_tensor_that_no_module_holds() -> None:
    x, other = torch.zeros(3), torch.ones(3)
    assert "not an ordinary one of a module" in refused(lambda: x + other, x)


def test_a_number_in_the_code_is_no_such_tensor() -> None:
    assert_repeats(lambda x: x + torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))


def test_statistics_that_move() -> None:
    layer, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    assert "writes into what it reads" in refused(lambda: layer(x), x)
    TracedProgram(lambda: layer.eval()(x), [x])


def test_code_of_a_program_is_not_even_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    layer, x, calls = nn.Linear(3, 2), torch.zeros(1, 3), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    assert "<lambda>() reads calls of the function around it" in refused(partial(layer, x), x)
    assert not calls
