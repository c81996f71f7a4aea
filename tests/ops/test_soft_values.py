"""Softmax values against sums written out, and their limits."""

import math

import numpy as np
import pytest
import torch

from polyak.ops.soft_values import munchausen_bonus, soft_log_policy, soft_value, softmax_mean
from tests.tolerance import bound

Q = torch.tensor([[1.0, 2.0, 4.0], [0.5, 0.5, -3.0]], dtype=torch.float64)
NEAR = bound(20, 10, np.float64)


@pytest.mark.parametrize("temperature", [0.03, 0.5, 3.0])
def test_soft_values_are_their_definitions(temperature):
    for q, value, logs in zip(Q.tolist(), soft_value(Q, temperature), soft_log_policy(Q, temperature), strict=True):
        weights = [math.exp((each - max(q)) / temperature) for each in q]
        assert float(value) == pytest.approx(max(q) + temperature * math.log(sum(weights)), abs=NEAR)
        for log, each in zip(logs.tolist(), q, strict=True):
            assert log == pytest.approx(each - max(q) - temperature * math.log(sum(weights)), abs=NEAR)
    # the value is the mean of q under the policy plus its entropy, in units of the temperature
    logs = soft_log_policy(Q, temperature)
    policy = (logs / temperature).exp()
    torch.testing.assert_close(soft_value(Q, temperature), (policy * (Q - logs)).sum(1), rtol=0, atol=NEAR)


def test_at_low_temperature_the_best_action_is_all_that_counts():
    torch.testing.assert_close(soft_value(Q[:1], 1e-9), Q[:1].amax(1), rtol=0, atol=1e-8)
    torch.testing.assert_close(soft_log_policy(Q[:1], 1e-9), Q[:1] - 4, rtol=0, atol=1e-8)


def test_the_munchausen_bonus_is_the_clipped_log_policy():
    actions = torch.tensor([1, 2])
    logs = soft_log_policy(Q, 0.5)[[0, 1], actions]
    assert (logs > -4).all()
    torch.testing.assert_close(munchausen_bonus(Q, actions, 0.9, 0.5, -10), 0.9 * logs, rtol=0, atol=NEAR)
    assert munchausen_bonus(Q, actions, 0.9, 0.03, -1.0).tolist() == [-0.9, -0.9]
    # as the temperature falls to 0 it becomes the clipped gap to the best action
    gap = munchausen_bonus(Q, actions, 1.0, 1e-9, -100)
    torch.testing.assert_close(gap, torch.tensor([-2.0, -3.5], dtype=torch.float64), rtol=0, atol=1e-8)


def test_the_softmax_mean_lies_between_mean_and_maximum():
    torch.testing.assert_close(softmax_mean(Q, 0.0), Q.mean(1), rtol=0, atol=NEAR)
    torch.testing.assert_close(softmax_mean(Q, 1e6), Q.amax(1), rtol=0, atol=NEAR)
    for beta in (0.05, 1.0, 7.0):
        weights = torch.exp(beta * (Q - Q.amax(1, keepdim=True)))
        torch.testing.assert_close(softmax_mean(Q, beta), (weights * Q).sum(1) / weights.sum(1), rtol=0, atol=NEAR)


@pytest.mark.parametrize("beta", [1e6, 1e38])
def test_the_softmax_mean_of_large_numbers_is_their_maximum(beta):
    q = torch.tensor([[-3e6, 1e6, 2e6], [-7.0, -5.0, -9.0]])
    assert torch.equal(softmax_mean(q, beta), q.amax(1))


def test_further_weights_of_the_softmax_mean():
    weights = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 5.0]], dtype=torch.float64)
    for beta in (0.0, 0.7, 5.0):
        each = weights * torch.exp(beta * Q)
        expected = (each * Q).sum(1) / each.sum(1)
        torch.testing.assert_close(softmax_mean(Q, beta, weights.log()), expected, rtol=0, atol=NEAR)
