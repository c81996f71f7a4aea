"""Soft policy iteration against closed forms, linear equations, soft value iteration and ordinary policy iteration."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyak import PolicyIteration, SoftPolicyIteration
from polyak.algorithms.mce_irl import soft_value_iteration
from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.worlds import max_bias

GAMMA = 0.9


def random_process(seed: int, n_states: int = 6, n_actions: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Transitions [S, A, S] and rewards [S, A] in [-1, 1]."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n_states), (n_states, n_actions)), rng.uniform(-1, 1, (n_states, n_actions))


def log_sum_exp(q: np.ndarray, temperature: float) -> np.ndarray:
    high = q.max(1)
    return high + temperature * np.log(np.exp((q - high[:, None]) / temperature).sum(1))


def test_one_state_has_a_closed_form() -> None:
    """It stays where it is: v = temperature log sum_a exp(r_a / temperature) / (1 - gamma)."""
    rewards = np.array([[0.3, -0.2, 1.0]])
    model = SoftPolicyIteration((np.ones((1, 3, 1)), rewards), gamma=GAMMA, temperature=0.5).learn(100)
    assert model.converged
    np.testing.assert_allclose(model.values, log_sum_exp(rewards, 0.5) / (1 - GAMMA), rtol=1e-12)
    shares = np.exp(rewards / 0.5)
    np.testing.assert_allclose(model.policy_table, shares / shares.sum(), rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_it_ends_at_the_fixed_point_of_soft_value_iteration(temperature: float) -> None:
    transitions, rewards = random_process(0)
    model = SoftPolicyIteration((transitions, rewards), gamma=GAMMA, temperature=temperature).learn(100)
    assert model.converged
    values = np.zeros(6)
    for _ in range(400):  # which leaves 0.9^400 < 1e-18 of the first error
        values = log_sum_exp(rewards + GAMMA * transitions @ values, temperature)
    # The residual is at most the tolerance of 1e-10, and the distance 1 / (1 - gamma) times that.
    np.testing.assert_allclose(model.values, values, atol=1e-9)


def test_its_values_solve_the_linear_equations_of_its_policy() -> None:
    """(I - gamma P_pi) v = r_pi + temperature H(pi), where pi is what the sweep before has made."""
    transitions, rewards = random_process(1)
    for sweeps in (1, 2, 3):
        policy = SoftPolicyIteration((transitions, rewards), gamma=GAMMA, temperature=0.3)
        if sweeps > 1:
            policy.learn(sweeps - 1)
        pi = policy.policy_table.copy()
        moves, entropy = np.einsum("sa,sat->st", pi, transitions), -(pi * np.log(pi)).sum(1)
        v = np.linalg.solve(np.eye(6) - GAMMA * moves, (pi * rewards).sum(1) + 0.3 * entropy)
        evaluated = SoftPolicyIteration((transitions, rewards), gamma=GAMMA, temperature=0.3).learn(sweeps)
        np.testing.assert_allclose(evaluated.table, rewards + GAMMA * transitions @ v, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_no_sweep_makes_a_state_worth_less(seed: int) -> None:
    """Lemma 2: soft action values of the next policy are at least those of the one before."""
    tables = [
        SoftPolicyIteration(random_process(seed), gamma=GAMMA, temperature=0.2).learn(n).table for n in range(1, 6)
    ]
    assert all((after >= before - 1e-12).all() for before, after in pairwise(tables))
    assert (tables[1] > tables[0]).all()


def test_it_agrees_with_the_planning_of_inverse_reinforcement_learning() -> None:
    transitions, _ = random_process(2)
    rewards = np.linspace(-1, 1, 6)
    plan = soft_value_iteration(torch.from_numpy(transitions), torch.from_numpy(rewards), GAMMA, None)
    model = SoftPolicyIteration((transitions, rewards), gamma=GAMMA, temperature=1.0).learn(100)
    np.testing.assert_allclose(model.values, plan.values.numpy(), atol=1e-9)
    np.testing.assert_allclose(model.policy_table, plan.policy.numpy(), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_at_a_low_temperature_it_is_policy_iteration(seed: int) -> None:
    """v <= v_soft <= v + temperature log A / (1 - gamma), the entropy being at most log A."""
    process = random_process(seed)
    hard = PolicyIteration(process, gamma=GAMMA).learn(100)
    for temperature in (1e-1, 1e-3, 1e-5):
        soft = SoftPolicyIteration(process, gamma=GAMMA, temperature=temperature).learn(100)
        gap = soft.values - hard.values
        assert (gap >= -1e-9).all()
        assert (gap <= temperature * np.log(3) / (1 - GAMMA) + 1e-9).all()
    np.testing.assert_array_equal(soft.greedy, hard.greedy)
    np.testing.assert_allclose(soft.policy_table, hard.policy_table, atol=1e-9)


def test_there_is_no_entropy_after_the_end() -> None:
    """Two actions lead from 0 to 1 and from there to the end, which is worth 0 whatever the temperature."""
    chances = np.zeros((3, 2, 3))
    chances[0, :, 1] = chances[1, :, 2] = chances[2, :, 2] = 1
    rewards = np.array([[0.0, 0.5], [1.0, 2.0], [7.0, 7.0]])
    process = FiniteProcess.from_arrays(chances, rewards, terminal=(2,))
    model = SoftPolicyIteration(process, gamma=1.0, temperature=2.0).learn(10)
    last = log_sum_exp(rewards[1:2], 2.0)[0]
    first = log_sum_exp(rewards[:1] + last, 2.0)[0]
    np.testing.assert_allclose(model.values, [first, last, 0.0], rtol=1e-12)
    assert model.converged


def test_frozen_lake() -> None:
    """A small temperature costs little: within it times log 4 over 1 - gamma of the best, 0.5420."""
    model = SoftPolicyIteration("FrozenLake-v1", gamma=0.99, temperature=1e-4).learn(100)
    assert model.converged
    assert 0.5420 <= model.start_value <= 0.5421 + 1e-4 * np.log(4) / 0.01


def test_actions_that_a_state_does_not_have_have_no_chance() -> None:
    model = SoftPolicyIteration(max_bias(), gamma=0.9, temperature=0.5).learn(100)
    assert (model.policy_table[~model.legal] == 0).all()
    np.testing.assert_allclose(model.policy_table.sum(1), 1)
    assert np.isfinite(model.values).all()


def test_it_acts_by_its_policy(tmp_path: Path) -> None:
    process: Any = random_process(3)
    model = SoftPolicyIteration(process, gamma=GAMMA, temperature=0.5, seed=0).learn(100)
    model.save(tmp_path / "model")
    model = SoftPolicyIteration.load(tmp_path / "model")
    np.random.seed(0)
    n, states = 20_000, np.zeros(20_000, np.int64)
    for masks, shares in (
        (None, model.policy_table[0]),
        (np.array([1, 0, 1], bool), model.policy_table[0] * [1, 0, 1]),
    ):
        p = shares / shares.sum()
        drawn, _ = model.predict(states, deterministic=False, action_masks=masks)
        seen = np.bincount(drawn, minlength=3) / n
        assert (np.abs(seen - p) <= 5 * np.sqrt(p * (1 - p) / n)).all()
    best, _ = model.predict(states[:1], deterministic=True)
    assert best[0] == model.policy_table[0].argmax()
