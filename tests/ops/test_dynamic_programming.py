"""Bellman's equations against each other, the book's numbers and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.worlds import random_walk
from polyak.ops.dynamic_programming import action_values, greedy_actions, greedy_values, policy_values


def tensors(process: FiniteProcess) -> tuple[torch.Tensor, ...]:
    continuing = process.chances * ~process.ends
    return tuple(map(torch.from_numpy, (process.mean_rewards, process.pairs, continuing, process.successors)))


def some_process(seed: int, n_states: int = 7, n_actions: int = 3) -> FiniteProcess:
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(n_states, 0.3), (n_states, n_actions))
    return FiniteProcess.from_arrays(chances, rng.normal(size=(n_states, n_actions, n_states)), terminal=(2,))


@pytest.mark.parametrize("seed", range(3))
def test_a_backup_is_the_sum_over_outcomes(seed: int) -> None:
    process, values = some_process(seed), np.random.default_rng(seed).normal(size=7)
    ours = action_values(torch.from_numpy(values), *tensors(process), 0.9).numpy()
    for pair in range(21):
        rows = range(process.first[pair], process.first[pair + 1])
        parts = [
            process.chances[o] * (process.rewards[o] + 0.9 * values[process.successors[o]] * (not process.ends[o]))
            for o in rows
        ]
        assert ours[pair // 3, pair % 3] == pytest.approx(sum(parts), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_solved_values_are_the_fixed_point(seed: int) -> None:
    process = some_process(seed)
    policy = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(3), 7))
    values = policy_values(policy, *tensors(process), 0.9)
    again = (policy * action_values(values, *tensors(process), 0.9)).sum(1)
    torch.testing.assert_close(values, again, rtol=0, atol=1e-12)


def test_the_gridworld_of_figure_4_1() -> None:
    """-1 a move, both corners end the episode, a random policy, no discount."""
    outcomes: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = {}
    for state in range(16):
        row, column = divmod(state, 4)
        moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
        there = [min(max(row + a, 0), 3) * 4 + min(max(column + b, 0), 3) for a, b in moves]
        ends = state in (0, 15)
        outcomes[state] = {
            a: [(1.0, state if ends else s, -1.0 * (not ends), ends or s in (0, 15))] for a, s in enumerate(there)
        }
    values = policy_values(torch.full((16, 4), 0.25).double(), *tensors(FiniteProcess.from_outcomes(outcomes)), 1.0)
    expected = [0, -14, -20, -22, -14, -18, -20, -20, -20, -20, -18, -14, -22, -20, -14, 0]
    np.testing.assert_allclose(values.numpy(), expected, atol=1e-10)


def test_the_random_walk_is_a_straight_line() -> None:
    values = policy_values(torch.ones(19, 1).double(), *tensors(random_walk().process), 1.0)
    np.testing.assert_allclose(values.numpy(), np.arange(-9, 10) / 10, atol=1e-12)


def test_without_a_discount_episodes_must_end_where_rewards_are() -> None:
    chances = np.zeros((3, 1, 3))
    chances[0, 0, 1] = chances[1, 0, 0] = chances[2, 0, 2] = 1
    idle = FiniteProcess.from_arrays(chances, np.array([0.0, 0.0, 0.0]))
    assert policy_values(torch.ones(3, 1).double(), *tensors(idle), 1.0).tolist() == [0, 0, 0]
    busy = FiniteProcess.from_arrays(chances, np.array([1.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match="gamma=1 cannot be used: under this policy some episodes never end"):
        policy_values(torch.ones(3, 1).double(), *tensors(busy), 1.0)
    discounted = policy_values(torch.ones(3, 1).double(), *tensors(busy), 0.5)
    np.testing.assert_allclose(discounted.numpy(), [4 / 3, 2 / 3, 0], atol=1e-12)


def test_greedy_is_over_what_there_is() -> None:
    q, legal = (
        torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, -1.0]]),
        torch.tensor([[True, False, True], [True, True, True]]),
    )
    assert greedy_values(q, legal).tolist() == [2.0, 0.0]
    assert greedy_actions(q, legal).tolist() == [2, 0]
    assert greedy_actions(q, legal, tolerance=1.0).tolist() == [0, 0]
