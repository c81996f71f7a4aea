"""The formulas of search against hand-made numbers and definitions."""

from __future__ import annotations

import numpy as np
import pytest

from polyak.algorithms.search import rules


def test_puct_is_alphazeros_formula() -> None:
    visits, q = np.array([[3.0, 1.0, 0.0]]), np.array([[0.5, -0.2, 0.1]])
    priors = np.array([[0.2, 0.5, 0.3]])
    c = np.log((1 + 4 + 19652) / 19652) + 1.25
    expected = [0.5 + c * 0.2 * 2 / 4, -0.2 + c * 0.5 * 2 / 2, 0.1 + c * 0.3 * 2 / 1]
    np.testing.assert_allclose(rules.puct(visits, q, priors, 1.25, 19652.0)[0], expected, rtol=1e-12)


def test_ucb_looks_at_everything_first_and_doubles_its_bonus_for_returns_of_two_signs() -> None:
    visits, q, priors = np.array([[3.0, 1.0, 0.0]]), np.array([[0.5, -0.2, 0.0]]), np.array([[0.1, 0.9, 0.4]])
    assert rules.ucb(visits, q, priors, 2**0.5, 2.0).argmax() == 2
    visits[0, 2] = 4.0
    scores = rules.ucb(visits, q, priors, 2**0.5, 2.0)[0]
    np.testing.assert_allclose(scores, q[0] + 2 * np.sqrt(2 * np.log(8) / visits[0]), rtol=1e-12)


@pytest.mark.parametrize("score", [rules.ucb, rules.puct])
def test_illegal_moves_are_never_looked_at(score: object) -> None:
    priors = np.array([[-np.inf, 0.5, -np.inf]])
    scores = score(np.zeros((1, 3)), np.zeros((1, 3)), priors, 1.0, 2.0)  # type: ignore[operator]
    assert scores.argmax() == 1
    assert not np.isnan(scores).any()


def test_noise_stays_among_legal_moves_and_keeps_probabilities() -> None:
    priors = np.tile([[0.7, -np.inf, 0.3]], (4000, 1))
    noisy = rules.with_noise(priors, 0.5, 0.25, np.random.default_rng(0))
    assert (noisy[:, 1] == -np.inf).all()
    np.testing.assert_allclose(noisy[:, [0, 2]].sum(1), 1, rtol=1e-9)
    # the mean of a symmetric Dirichlet over two moves is 1/2, its variance 1/4 / (2 alpha + 1) = 1/8
    error = 5 * 0.25 * (1 / 8 / 4000) ** 0.5
    assert abs(noisy[:, 0].mean() - (0.75 * 0.7 + 0.25 * 0.5)) < error


def test_temperature() -> None:
    visits = np.array([[4.0, 2.0, 0.0], [3.0, 3.0, 1.0]])
    np.testing.assert_allclose(rules.tempered(visits, 1.0)[0], [2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(rules.tempered(visits, 0.5)[0], [0.8, 0.2, 0])
    np.testing.assert_allclose(rules.tempered(visits, np.array([0.0, 0.0])), [[1, 0, 0], [0.5, 0.5, 0]])


def test_draws_have_the_probabilities_asked_for() -> None:
    shares = np.tile([[0.2, 0.0, 0.8]], (20_000, 1))
    counts = np.bincount(rules.draw(shares, np.random.default_rng(0)), minlength=3) / 20_000
    assert counts[1] == 0
    assert abs(counts[0] - 0.2) < 5 * (0.16 / 20_000) ** 0.5


def test_halving_spends_as_much_on_every_round() -> None:
    """16 simulations among 4 moves: two visits each, then four more for each of the better two."""
    assert rules.halving(4, 16).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert rules.halving(1, 3).tolist() == [0, 1, 2]
    assert rules.halving(16, 5).tolist() == [0] * 5


def test_completed_values_of_gumbel_muzero() -> None:
    """Equation 33: (v + N sum_seen p q / sum_seen p) / (1 + N) for what was not looked at."""
    visits, q, priors = np.array([[2.0, 1.0, 0.0]]), np.array([[0.5, -1.0, 0.0]]), np.array([[0.6, 0.2, 0.2]])
    mixed = (0.3 + 3 * (0.6 * 0.5 - 0.2) / 0.8) / 4
    np.testing.assert_allclose(rules.completed(visits, q, priors, np.array([0.3]))[0], [0.5, -1.0, mixed])


def test_visits_catch_up_with_the_improved_policy() -> None:
    """Equation 14 without noise: after N visits each move has its share of them, to within one."""
    policy, visits = np.array([[0.5, 0.3, 0.2]]), np.zeros((1, 3))
    for _ in range(200):
        visits[0, rules.catching_up(visits, policy).argmax()] += 1
    assert np.abs(visits[0] - 200 * policy[0]).max() <= 1
