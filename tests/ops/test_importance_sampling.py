"""Importance sampling, on a problem whose trajectories can all be listed: expectations are sums, not samples."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from polyak.ops import importance_sampling as ops
from tests.tolerance import bound

GAMMA, HORIZON, STATES, ACTIONS = 0.9, 3, 2, 2
EXACT = 100 * bound(1000, 10.0, np.float64)  # a few hundred trajectories, whose ratios are below 10


class Trajectories(NamedTuple):
    """All that there are, of at most HORIZON steps."""

    chance: Tensor  # [E] under the behaviour
    log_ratios: Tensor  # [E, T]
    rewards: Tensor  # [E, T]
    states: np.ndarray  # [E, T + 1], -1 after a terminal state
    actions: np.ndarray  # [E, T], -1 after the end


class Problem:
    """Two states, two actions; every action may end the episode. A behaviour, and another policy."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.start = rng.dirichlet(np.ones(STATES))
        self.step = rng.dirichlet(np.ones(STATES + 1), (STATES, ACTIONS))  # the last outcome is the end
        self.reward = rng.normal(size=(STATES, ACTIONS))
        self.behaviour, self.policy = rng.dirichlet(2 * np.ones(ACTIONS), (2, STATES))

    def values(self, horizon: int = HORIZON) -> list[tuple[np.ndarray, np.ndarray]]:
        """Q [S, A] and V [S] of the policy at each step, and after the last one."""
        found = [(np.zeros((STATES, ACTIONS)), np.zeros(STATES))]
        for _ in range(horizon):
            q = self.reward + GAMMA * self.step[..., :STATES] @ found[0][1]
            found.insert(0, (q, (self.policy * q).sum(1)))
        return found

    @property
    def value(self) -> float:
        return float(self.start @ self.values()[0][1])

    def trajectories(self) -> Trajectories:
        rows: list[Any] = []

        def go(chance: float, states: list[int], actions: list[int]) -> None:
            if states[-1] == STATES or len(actions) == HORIZON:
                rows.append((chance, states, actions))
                return
            s = states[-1]
            for a, then in product(range(ACTIONS), range(STATES + 1)):
                go(chance * self.behaviour[s, a] * self.step[s, a, then], [*states, then], [*actions, a])

        for s in range(STATES):
            go(self.start[s], [s], [])
        n = len(rows)
        states, actions = np.full((n, HORIZON + 1), -1), np.full((n, HORIZON), -1)
        for row, (_, seen, done) in enumerate(rows):
            states[row, : len(seen)], actions[row, : len(done)] = seen, done
        states[states == STATES] = -1
        over, at = actions < 0, (states[:, :-1].clip(0), actions.clip(0))
        ratios = np.log(self.policy[at] / self.behaviour[at])
        return Trajectories(
            torch.tensor([chance for chance, _, _ in rows], dtype=torch.float64),
            torch.from_numpy(np.where(over, 0.0, ratios)),
            torch.from_numpy(np.where(over, 0.0, self.reward[at])),
            states,
            actions,
        )

    def critic(self, found: Trajectories, q: np.ndarray, v: np.ndarray) -> tuple[Tensor, Tensor]:
        """Values by step, [T, S, A] and [T + 1, S], at the trajectories: [E, T] and [E, T + 1]."""
        states, actions = found.states, found.actions
        taken = q[np.arange(HORIZON), states[:, :-1].clip(0), actions.clip(0)]
        seen = v[np.arange(HORIZON + 1), states.clip(0)]
        return torch.from_numpy(np.where(actions < 0, 0, taken)), torch.from_numpy(np.where(states < 0, 0, seen))


@pytest.fixture(params=[0, 1, 2])
def problem(request: pytest.FixtureRequest) -> Problem:
    return Problem(request.param)


def wrong_values(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    q = np.random.default_rng(9).normal(size=(HORIZON, STATES, ACTIONS)) * 3
    return q, np.concatenate([(problem.policy * q).sum(2), np.zeros((1, STATES))])


def true_values(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    values = problem.values()
    return np.stack([q for q, _ in values[:-1]]), np.stack([v for _, v in values])


def test_the_chances_of_all_trajectories_add_up_to_one(problem: Problem) -> None:
    assert problem.trajectories().chance.sum().item() == pytest.approx(1.0, abs=EXACT)


@pytest.mark.parametrize("estimator", [ops.importance_sampling, ops.per_decision])
def test_ratios_alone_are_unbiased(problem: Problem, estimator: Any) -> None:
    found = problem.trajectories()
    terms = estimator(found.log_ratios, found.rewards, GAMMA)
    assert (found.chance @ terms).item() == pytest.approx(problem.value, abs=EXACT)


def test_doubly_robust_is_unbiased_whatever_the_critic_says(problem: Problem) -> None:
    found = problem.trajectories()
    q, v = problem.critic(found, *wrong_values(problem))
    terms = ops.doubly_robust(found.log_ratios, found.rewards, q, v, GAMMA)
    assert (found.chance @ terms).item() == pytest.approx(problem.value, abs=EXACT)


def test_doubly_robust_is_unbiased_whatever_the_ratios_are_where_the_critic_is_right(problem: Problem) -> None:
    found = problem.trajectories()
    q, v = problem.critic(found, *true_values(problem))
    terms = ops.doubly_robust(found.log_ratios * 0.3 - 0.1, found.rewards, q, v, GAMMA)
    assert (found.chance @ terms).item() == pytest.approx(problem.value, abs=EXACT)


def test_a_right_critic_makes_doubly_robust_vary_least(problem: Problem) -> None:
    found = problem.trajectories()

    def variance(terms: Tensor) -> float:
        return (found.chance @ (terms - problem.value) ** 2).item()

    q, v = problem.critic(found, *true_values(problem))
    right = variance(ops.doubly_robust(found.log_ratios, found.rewards, q, v, GAMMA))
    per_decision = variance(ops.per_decision(found.log_ratios, found.rewards, GAMMA))
    assert right < per_decision


def test_it_is_the_recursion_of_its_paper(problem: Problem) -> None:
    found = problem.trajectories()
    q, v = problem.critic(found, *wrong_values(problem))
    value = v[:, HORIZON]
    for t in reversed(range(HORIZON)):
        value = v[:, t] + found.log_ratios[:, t].exp() * (found.rewards[:, t] + GAMMA * value - q[:, t])
    # beyond the end all terms are 0, and ratios 1
    torch.testing.assert_close(ops.doubly_robust(found.log_ratios, found.rewards, q, v, GAMMA), value)


def test_where_an_episode_is_cut_short_the_critic_continues(problem: Problem) -> None:
    """Two of three steps, and the true value of the state after them; in between the critic is wrong."""
    found = problem.trajectories()
    _, values = problem.critic(found, *true_values(problem))
    q, v = (torch.from_numpy(np.where(array < 0, 0.0, 1.7)) for array in (found.actions[:, :2], found.states[:, :3]))
    v[:, 2] = values[:, 2]
    terms = ops.doubly_robust(found.log_ratios[:, :2], found.rewards[:, :2], q, v, GAMMA)
    assert (found.chance @ terms).item() == pytest.approx(problem.value, abs=EXACT)


# -- weighted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [ops.weighted_importance_sampling, ops.weighted_per_decision])
def test_weighted_ratios_are_consistent(problem: Problem, estimator: Any) -> None:
    """With every trajectory as often as it should be, they are exact."""
    found = problem.trajectories()
    value = estimator(found.log_ratios, found.rewards, GAMMA, counts=found.chance)
    assert value.item() == pytest.approx(problem.value, abs=EXACT)


def test_weighted_doubly_robust_is_consistent(problem: Problem) -> None:
    found = problem.trajectories()
    q, v = problem.critic(found, *wrong_values(problem))
    value = ops.weighted_doubly_robust(found.log_ratios, found.rewards, q, v, GAMMA, counts=found.chance)
    assert value.item() == pytest.approx(problem.value, abs=EXACT)


def test_weighted_estimates_stay_within_what_was_earned() -> None:
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        log_ratios, rewards = (torch.randn(5, 4, generator=rng, dtype=torch.float64) * 3 for _ in range(2))
        earned = (rewards * GAMMA ** torch.arange(4)).sum(1)
        whole = ops.weighted_importance_sampling(log_ratios, rewards, GAMMA)
        assert earned.min() - EXACT <= whole <= earned.max() + EXACT
        least, most = ((rewards.aminmax(dim=0)[i] * GAMMA ** torch.arange(4)).sum() for i in (0, 1))
        assert least - EXACT <= ops.weighted_per_decision(log_ratios, rewards, GAMMA) <= most + EXACT
        unweighted = ops.importance_sampling(log_ratios, rewards, GAMMA).mean()
        assert not torch.isclose(unweighted, whole)


def test_counts_are_repeated_episodes(problem: Problem) -> None:
    found = problem.trajectories()
    q, v = problem.critic(found, *wrong_values(problem))
    rows = np.random.default_rng(3).integers(len(q), size=(2, 40))
    counts = torch.stack([torch.bincount(torch.from_numpy(row), minlength=len(q)) for row in rows])
    columns = {"log_ratios": found.log_ratios, "rewards": found.rewards, "q": q, "v": v}
    for estimator, names in (
        (ops.weighted_importance_sampling, ("log_ratios", "rewards")),
        (ops.weighted_per_decision, ("log_ratios", "rewards")),
        (ops.weighted_doubly_robust, ("log_ratios", "rewards", "q", "v")),
    ):
        together: Any = estimator(**{name: columns[name] for name in names}, gamma=GAMMA, counts=counts)  # type: ignore[operator]
        for row, value in zip(rows, together, strict=True):
            alone = estimator(**{name: columns[name][row] for name in names}, gamma=GAMMA)  # type: ignore[operator]
            assert value.item() == pytest.approx(alone.item(), abs=EXACT)


def test_ratios_too_large_for_numbers_still_weigh() -> None:
    log_ratios = torch.tensor([[900.0, 900.0], [900.0, 899.0], [-1e4, 0.0]], dtype=torch.float64)
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 5.0]], dtype=torch.float64)
    weight = 1 / (1 + np.exp(-1))
    for estimator in (ops.weighted_importance_sampling, ops.weighted_per_decision):
        assert estimator(log_ratios, rewards, 1.0).item() == pytest.approx(weight)
    assert ops.effective_size(log_ratios).item() == pytest.approx((1 + np.exp(-1)) ** 2 / (1 + np.exp(-2)))


def test_what_the_policy_never_does_has_no_weight() -> None:
    log_ratios = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]], dtype=torch.float64)
    rewards = torch.tensor([[1.0, 7.0], [3.0, 0.0]], dtype=torch.float64)
    assert ops.weighted_per_decision(log_ratios, rewards, 1.0).item() == pytest.approx(2.0)
    assert ops.weighted_importance_sampling(log_ratios, rewards, 1.0).item() == pytest.approx(3.0)
    assert ops.per_decision(log_ratios, rewards, 1.0).tolist() == [1.0, 3.0]
    impossible = torch.full((2, 2), -torch.inf, dtype=torch.float64)
    assert ops.effective_size(impossible).item() == 0.0
    assert ops.effective_size(torch.zeros(4, 3)).item() == 4.0
