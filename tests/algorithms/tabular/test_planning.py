"""Exact answers: each is computed by the library in two ways, and here once more by plain loops over ``P``."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import PolicyIteration, QLearning, ValueIteration
from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.table_env import TableEnv
from polyak.envs.tabular.worlds import blackjack, max_bias

#: Environment, discount, sweeps (None: until nothing changes) and what the start is worth; to as many digits as known.
EXACT = [
    ("FrozenLake-v1", 1.0, 100, 0.7442),
    ("FrozenLake-v1", 1.0, None, 14 / 17),
    ("FrozenLake-v1", 0.99, None, 0.5420),
    ("FrozenLake8x8-v1", 1.0, 200, 0.9132),
    ("Taxi-v4", 1.0, None, 7.93),
    ("CliffWalking-v1", 1.0, None, -13.0),
]


def by_loops(env: Any, gamma: float, sweeps: int) -> float:
    """Bellman's optimality backup, state by state, from Gymnasium's own table."""
    table, values = env.unwrapped.P, dict.fromkeys(env.unwrapped.P, 0.0)
    for _ in range(sweeps):
        before, values = values, {}
        for state, row in table.items():
            values[state] = max(
                sum(p * (reward + (0.0 if ends else gamma * before[there])) for p, there, reward, ends in outcomes)
                for outcomes in row.values()
            )
    return sum(p * values[state] for state, p in enumerate(env.unwrapped.initial_state_distrib))


@pytest.mark.parametrize(("env_id", "gamma", "sweeps", "value"), EXACT)
def test_the_start_is_worth(env_id: str, gamma: float, sweeps: int | None, value: float) -> None:
    env = gym.make(env_id)
    model = ValueIteration(env, gamma=gamma).learn(sweeps or 100_000)
    assert model.start_value == pytest.approx(value, abs=6e-5)
    loops = {"FrozenLake-v1": 1000, "FrozenLake8x8-v1": 200, "Taxi-v4": 20, "CliffWalking-v1": 20}[env_id]
    assert model.start_value == pytest.approx(by_loops(env, gamma, sweeps or loops), abs=1e-6)
    if sweeps is None:
        assert model.converged
        solved = PolicyIteration(env_id, gamma=gamma).learn(100)
        assert solved.converged
        assert solved.start_value == pytest.approx(model.start_value, abs=1e-8)
        np.testing.assert_allclose(solved.values, model.values, atol=1e-6)


def test_the_best_policies_reach_their_values() -> None:
    for env_id, value in (("CliffWalking-v1", -13.0), ("Taxi-v4", None)):
        for cls in (ValueIteration, PolicyIteration):
            env = gym.make(env_id)
            model = cls(env_id, gamma=1.0).learn(1000)
            observation, _ = env.reset(seed=1)
            wanted = model.values[observation] if value is None else value
            total, over = 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(int(model.predict(observation)[0]))
                total, over = total + float(reward), terminated or truncated
            assert total == pytest.approx(wanted)


# -- blackjack ---------------------------------------------------------------------------------------------------------

DECK = {card: Fraction(4 if card == 10 else 1, 13) for card in range(1, 11)}


def worth(cards: tuple[int, int]) -> tuple[int, bool]:
    """The hand (sum with aces as 1, whether there is an ace) as its best sum, and whether an ace counts 11."""
    usable = bool(cards[1]) and cards[0] + 10 <= 21
    return cards[0] + 10 * usable, usable


@cache
def dealers(cards: tuple[int, int]) -> tuple[tuple[int, Fraction], ...]:
    total, _ = worth(cards)
    if total >= 17:
        return ((total, Fraction(1)),)
    ends: dict[int, Fraction] = {}
    for card, chance in DECK.items():
        for end, its in dealers((cards[0] + card, int(cards[1] or card == 1))):
            ends[end] = ends.get(end, Fraction(0)) + chance * its
    return tuple(ends.items())


@cache
def best_play(cards: tuple[int, int], dealer: int) -> Fraction:
    """What a hand is worth, played best. Written by hands of cards, where the library has states."""
    total, _ = worth(cards)
    if total > 21:
        return Fraction(-1)
    hand = (dealer, int(dealer == 1))
    stick = sum(
        (chance * ((total > end or end > 21) - (total < end <= 21)) for end, chance in dealers(hand)), Fraction(0)
    )
    hit = sum(
        (p * best_play((cards[0] + card, int(cards[1] or card == 1)), dealer) for card, p in DECK.items()), Fraction(0)
    )
    return max(stick, hit)


@pytest.mark.parametrize(("sab", "published"), [(True, -0.0431), (False, -0.0466)])
def test_blackjack(sab: bool, published: float) -> None:
    exact = Fraction(0)
    for first, p in DECK.items():
        for second, q in DECK.items():
            for dealer, r in DECK.items():
                natural = sab and {first, second} == {1, 10}
                tie = DECK[10] if dealer == 1 else DECK[1] if dealer == 10 else Fraction(0)
                value = 1 - tie if natural else best_play((first + second, int(1 in (first, second))), dealer)
                exact += p * q * r * value
    assert float(exact) == pytest.approx(published, abs=5e-5)
    for cls in (ValueIteration, PolicyIteration):
        assert cls(blackjack(sab), gamma=1.0).learn(100).start_value == pytest.approx(float(exact), abs=1e-12)


def test_blackjack_deals_as_gymnasium_does() -> None:
    """First states, and where hitting leads: 5,000 hands of Gymnasium's, within five standard errors."""
    process = blackjack().process
    env, hands = gym.make("Blackjack-v1", sab=False), 5_000
    env.reset(seed=0)
    seen = np.zeros(process.n_states)
    hits: dict[int, list[int]] = {}
    for _ in range(hands):
        (total, dealer, ace), _ = env.reset()
        seen[state := (total * 11 + dealer) * 2 + ace] += 1
        (total, dealer, ace), _, terminated, _, _ = env.step(1)
        hits.setdefault(state, []).append(-1 if terminated else (total * 11 + dealer) * 2 + ace)
    assert np.all(np.abs(seen / hands - process.starts) <= 5 * np.sqrt(process.starts / hands))
    state, ends = max(hits.items(), key=lambda item: len(item[1]))
    for outcome in range(process.first[2 * state + 1], process.first[2 * state + 2]):
        if not process.ends[outcome]:
            p = process.chances[process.first[2 * state + 1] : process.first[2 * state + 2]][
                process.successors[process.first[2 * state + 1] : process.first[2 * state + 2]]
                == process.successors[outcome]
            ].sum()
            assert abs(ends.count(process.successors[outcome]) / len(ends) - p) <= 5 * np.sqrt(p / len(ends))


# -- models ------------------------------------------------------------------------------------------------------------


def test_models_come_as_arrays_tables_and_environments(tmp_path: Path) -> None:
    chances = np.zeros((3, 2, 3))
    chances[0, 0, 1] = chances[0, 1, 0] = chances[1, :, 2] = chances[2, :, 2] = 1
    rewards = np.array([[0.0, 0.1], [1.0, 2.0], [0.0, 0.0]])
    table = FiniteProcess.from_arrays(chances, rewards, terminal=(2,))
    wanted = [0.5 * 2, 2, 0]
    for model in ((chances, rewards), table, TableEnv(table), TableEnv(table).P):
        for cls in (ValueIteration, PolicyIteration):
            found = cls(model, gamma=0.5).learn(100)
            np.testing.assert_allclose(found.values, wanted, atol=1e-9)
    found.save(tmp_path / "model")
    again = PolicyIteration.load(tmp_path / "model")
    np.testing.assert_array_equal(again.table, found.table)
    assert again.predict(1)[0] == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ValueIteration("Blackjack-v1"), "has no table P of its transitions"),
        (lambda: ValueIteration((np.ones((2, 2)), np.ones(2))), r"transitions must be of shape \[S, A, S\]"),
        (lambda: ValueIteration((np.full((2, 1, 2), 0.4), np.ones(2))), "state 0, action 0 add up to 0.8: make it 1"),
        (lambda: ValueIteration((np.full((2, 1, 2), 0.5), np.ones(3))), r"rewards must be of shape \[S\]"),
        (lambda: ValueIteration({0: {}}), "P must have actions"),
        (lambda: ValueIteration({1: {0: [(1.0, 1, 0.0, False)]}}), "P must have the states 0 to 0"),
        (lambda: ValueIteration({0: {0: [(1.0, 3, 0.0, False)]}}), "next states must be of 0 to 0, got 3"),
        (lambda: PolicyIteration((np.ones((1, 1, 1)), np.ones(1)), gamma=1.0).learn(1), "gamma=1 cannot be used"),
    ],
)
def test_what_is_no_model(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_actions_that_a_state_does_not_have() -> None:
    env = max_bias()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action=5 cannot be taken in state 0, which has the actions \[0, 1\]"):
        env.step(5)
    model = QLearning(env, 0.1, gamma=1.0, seed=0).learn(500)
    assert np.isnan(model.table[0, 2:]).all()
    assert ValueIteration(env, gamma=1.0).learn(10).values.tolist() == pytest.approx([0.0, -0.1, 0.0], abs=1e-9)
