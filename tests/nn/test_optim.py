"""RMSprop with TensorFlow's arithmetic."""

import copy
import math

import pytest
import torch

from polyak.nn import RMSpropTFLike
from tests.tolerance import bound


def test_two_steps_by_hand():
    w = torch.tensor([2.0], requires_grad=True)
    optimizer = RMSpropTFLike([w], lr=0.1, alpha=0.9, eps=0.5)
    w.grad = torch.tensor([3.0])
    optimizer.step()
    square = 0.9 * 1 + 0.1 * 9  # the mean square starts at 1
    expected = 2 - 0.1 * 3 / math.sqrt(square + 0.5)  # eps inside the root
    assert w.item() == pytest.approx(expected, abs=bound(10, size=3))
    w.grad = torch.tensor([-1.0])
    optimizer.step()
    square = 0.9 * square + 0.1 * 1
    assert w.item() == pytest.approx(expected + 0.1 / math.sqrt(square + 0.5), abs=bound(20, size=3))


def test_momentum_weight_decay_and_centering_by_hand():
    w = torch.tensor([2.0], requires_grad=True)
    optimizer = RMSpropTFLike([w], lr=0.1, alpha=0.9, eps=0.01, weight_decay=0.5, momentum=0.7, centered=True)
    value, square, mean, velocity = 2.0, 1.0, 0.0, 0.0
    for g in (3.0, -1.0, 0.5):
        w.grad = torch.tensor([g])
        optimizer.step()
        g += 0.5 * value
        square, mean = 0.9 * square + 0.1 * g * g, 0.9 * mean + 0.1 * g
        velocity = 0.7 * velocity + g / math.sqrt(square - mean**2 + 0.01)
        value -= 0.1 * velocity
        assert w.item() == pytest.approx(value, abs=bound(3 * 10, size=10))


def test_a_learning_rate_tensor_may_be_moved_in_place():
    def run(lr):
        w = torch.tensor([2.0], requires_grad=True)
        optimizer = RMSpropTFLike([w], lr=lr)
        for rate in (0.1, 0.02):
            if isinstance(lr, torch.Tensor):
                lr.fill_(rate)
            else:
                optimizer.param_groups[0]["lr"] = rate
            w.grad = torch.tensor([1.0])
            optimizer.step()
        return w.item()

    assert run(torch.tensor(0.5)) == pytest.approx(run(0.5))


def test_state_round_trip_continues_the_same_run():
    def step(w, optimizer):
        w.grad = 2 * w.detach()
        optimizer.step()

    w = torch.tensor([2.0], requires_grad=True)
    optimizer = RMSpropTFLike([w], momentum=0.9, centered=True)
    step(w, optimizer)
    twin = w.detach().clone().requires_grad_()
    loaded = RMSpropTFLike([twin], momentum=0.9, centered=True)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(3):
        step(w, optimizer)
        step(twin, loaded)
    assert torch.equal(w, twin)


def test_steps_that_were_counted_in_a_plain_number_are_counted_on():
    w = torch.tensor([2.0], requires_grad=True)
    optimizer = RMSpropTFLike([w])
    w.grad = torch.tensor([1.0])
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["step"] = 7
    optimizer.load_state_dict(state)
    optimizer.step()
    count = optimizer.state[w]["step"]
    assert isinstance(count, torch.Tensor)
    assert count.dtype == torch.float32
    assert count == 8


def test_parameters_without_gradient_stay_and_a_closure_returns_its_loss():
    w, still = torch.tensor([2.0], requires_grad=True), torch.tensor([1.0], requires_grad=True)
    optimizer = RMSpropTFLike([w, still])

    def closure():
        optimizer.zero_grad()
        loss = (w**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert w.item() < 2
    assert still.item() == 1.0


@pytest.mark.parametrize("name", ["lr", "alpha", "eps", "weight_decay", "momentum"])
def test_negative_arguments_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        RMSpropTFLike([torch.zeros(1, requires_grad=True)], **{name: -1})


def test_sparse_gradients_are_refused():
    w = torch.zeros(3, requires_grad=True)
    w.grad = torch.zeros(3).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        RMSpropTFLike([w]).step()
