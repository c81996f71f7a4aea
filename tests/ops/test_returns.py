"""Every estimator against a brute-force sum, on random patterns of termination and truncation."""

import numpy as np
import pytest
import torch

from polyak.ops.returns import discounted_returns, gae, n_step_returns, reverse_scan, vtrace
from tests.tolerance import bound

GAMMA = 0.9
SHAPES = [(1, 1), (5, 3), (33, 2), (70, 1)]
NEAR = bound(3 * 70, size=3 * 5 / (1 - GAMMA), dtype=np.float64)
"""Sums over at most 70 steps of three terms below 5 each, discounted."""


def rollout(shape, seed, p_end=0.2):
    """Rewards, values, true next values, discounts and cuts of a random rollout, in float64."""
    rng = np.random.default_rng(seed)
    terminated = rng.random(shape) < p_end / 2
    cut = terminated | (rng.random(shape) < p_end / 2)
    rewards, values, next_values = rng.normal(size=(3, *shape))
    # inside an episode the successor's value is the next row's value
    next_values[:-1] = np.where(cut[:-1], next_values[:-1], values[1:])
    discounts = GAMMA * (1 - terminated)
    return tuple(torch.from_numpy(np.asarray(a)) for a in (rewards, values, next_values, discounts, cut))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_gae_is_the_discounted_sum_of_the_td_errors_of_the_episode(shape, lam, seed):
    rewards, values, next_values, discounts, cut = rollout(shape, seed)
    advantages, targets = gae(rewards, values, next_values, discounts, lam, cut)
    steps, envs = shape
    for env in range(envs):
        for t in range(steps):
            expected, weight = 0.0, 1.0
            for k in range(t, steps):
                delta = rewards[k, env] + discounts[k, env] * next_values[k, env] - values[k, env]
                expected += weight * float(delta)
                weight *= GAMMA * lam
                if cut[k, env]:
                    break
            assert float(advantages[t, env]) == pytest.approx(expected, abs=NEAR)
    torch.testing.assert_close(targets, advantages + values)


@pytest.mark.parametrize("seed", range(3))
def test_gae_limits(seed):
    rewards, values, next_values, discounts, cut = rollout((40, 3), seed)
    one_step, _ = gae(rewards, values, next_values, discounts, 0.0, cut)
    torch.testing.assert_close(one_step, rewards + discounts * next_values - values)
    _, monte_carlo = gae(rewards, values, next_values, discounts, 1.0, cut)
    torch.testing.assert_close(monte_carlo, discounted_returns(rewards, next_values, discounts, cut))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
def test_n_step_returns(shape, n):
    rewards, _, next_values, discounts, cut = rollout(shape, 7)
    got = n_step_returns(rewards, next_values, discounts, cut, n)
    steps, envs = shape
    for env in range(envs):
        for t in range(steps):
            expected, weight, k = 0.0, 1.0, t
            while True:
                expected += weight * float(rewards[k, env])
                weight *= float(discounts[k, env])
                if cut[k, env] or k == steps - 1 or k - t + 1 == n:
                    break
                k += 1
            expected += weight * float(next_values[k, env])
            assert float(got[t, env]) == pytest.approx(expected, abs=NEAR)


def test_long_and_full_windows_agree():
    rewards, _, next_values, discounts, cut = rollout((50, 4), 3)
    torch.testing.assert_close(
        n_step_returns(rewards, next_values, discounts, cut, 50),
        discounted_returns(rewards, next_values, discounts, cut),
    )


def test_truncation_bootstraps_and_termination_never_does():
    one = torch.ones(1, 1)
    for bootstrap, expected in ((0.0, 1.0), (GAMMA, 1.0 + GAMMA * 5)):
        returns = discounted_returns(one, 5 * one, bootstrap * one, one)
        assert returns.item() == pytest.approx(expected)
        advantages, _ = gae(one, 0 * one, 5 * one, bootstrap * one, 0.95, one)
        assert advantages.item() == pytest.approx(expected)


@pytest.mark.parametrize("steps", [1, 2, 31, 32, 33, 64, 65, 1000])
def test_scan_equals_the_loop_in_float32(steps):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(steps, 3, generator=generator)
    c = 0.99 * (torch.rand(steps, 3, generator=generator) > 0.02)
    expected, y = torch.empty(steps, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for t in reversed(range(steps)):
        y = x[t].double() + c[t].double() * y
        expected[t] = y
    # what is rounded in one step has faded a hundred steps further
    near = bound(min(steps, 100), size=4.0 / (1 - 0.99))
    torch.testing.assert_close(reverse_scan(x, c).double(), expected, rtol=0, atol=near)


def test_inputs_are_left_alone():
    arguments = rollout((50, 2), 0)
    copies = [a.clone() for a in arguments]
    rewards, values, next_values, discounts, cut = arguments
    gae(rewards, values, next_values, discounts, 0.9, cut)
    discounted_returns(rewards, next_values, discounts, cut)
    n_step_returns(rewards, next_values, discounts, cut, 4)
    vtrace(rewards, rewards, values, next_values, discounts, cut)
    assert all(torch.equal(a, b) for a, b in zip(arguments, copies, strict=True))


def test_errors():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        n_step_returns(*[torch.ones(2, 1)] * 4, n=0)
    with pytest.raises(ValueError, match="c_bar must be positive and at most rho_bar, got c_bar=2 and rho_bar=1"):
        vtrace(*[torch.ones(2, 1)] * 6, c_bar=2)
    with pytest.raises(ValueError, match="same shape"):
        reverse_scan(torch.ones(2, 1), torch.ones(3, 1))


BARS = [(1.0, 1.0), (2.0, 0.5), (float("inf"), 1.0), (0.7, 0.7)]


def vtrace_by_definition(log_rhos, rewards, values, next_values, discounts, cut, lam, rho_bar, c_bar, pg_rho_bar):
    """Eq. 1 of the paper, term by term, in float64."""
    steps, envs = rewards.shape
    ratios = log_rhos.double().exp()
    targets, advantages = torch.zeros(steps, envs).double(), torch.zeros(steps, envs).double()
    for env in range(envs):
        for s in range(steps):
            total, weight = float(values[s, env]), 1.0
            for t in range(s, steps):
                rho = min(rho_bar, float(ratios[t, env]))
                delta = float(rewards[t, env] + discounts[t, env] * next_values[t, env] - values[t, env])
                total += weight * rho * delta
                if cut[t, env]:
                    break
                weight *= float(discounts[t, env]) * lam * min(c_bar, float(ratios[t, env]))
            targets[s, env] = total
        for s in range(steps):
            last = cut[s, env] or s == steps - 1
            successor = float(next_values[s, env] if last else targets[s + 1, env])
            gain = float(rewards[s, env]) + float(discounts[s, env]) * successor - float(values[s, env])
            advantages[s, env] = min(pg_rho_bar or rho_bar, float(ratios[s, env])) * gain
    return targets, advantages


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rho_bar", "c_bar"), BARS)
@pytest.mark.parametrize(("lam", "pg_rho_bar"), [(0.0, None), (0.9, 1.5), (1.0, 0.6)])
def test_vtrace_is_its_definition(shape, rho_bar, c_bar, lam, pg_rho_bar):
    inputs = rollout(shape, 5)
    log_rhos = 0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bars = rho_bar, c_bar, pg_rho_bar
    expected_results = vtrace_by_definition(log_rhos, *inputs, lam, *bars)
    for got, expected in zip(vtrace(log_rhos, *inputs, lam, *bars), expected_results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_vtrace_on_policy_gives_lambda_returns(seed, lam):
    """TD(lambda); with lambda 1 the n-step return to the end of the experience (section 4.1 of the paper, remark 1)."""
    rewards, values, next_values, discounts, cut = inputs = rollout((40, 3), seed)
    targets, advantages = vtrace(torch.zeros(40, 3).double(), *inputs, lam)
    torch.testing.assert_close(targets, gae(rewards, values, next_values, discounts, lam, cut)[1])
    if lam == 1:
        returns = n_step_returns(rewards, next_values, discounts, cut, 40)
        torch.testing.assert_close(targets, returns)
        torch.testing.assert_close(advantages, returns - values)


def test_vtrace_is_a_constant_for_gradients_and_bears_extreme_ratios():
    rewards, values, next_values, discounts, cut = rollout((6, 2), 0)
    log_rhos = torch.tensor([-1000.0, 1000.0, 0.0, 100.0, -100.0, 0.0], dtype=torch.float64)[:, None].expand(6, 2)
    results = vtrace(log_rhos.requires_grad_(), rewards, values.requires_grad_(), next_values, discounts, cut)
    for result in results:
        assert not result.requires_grad
        assert result.isfinite().all()
