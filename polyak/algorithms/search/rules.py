"""Selection rules in trees, and policies of their roots: pure functions of arrays.

Shapes: E nodes, A moves. In all of them ``visits`` [E, A] are the visit counts of moves, ``q`` [E, A] their mean
values, and ``priors`` [E, A] is -inf for illegal moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FIRST = np.float32(1e6)
"""Larger than any score: for moves that must be visited before others are visited again."""


def means(visits: np.ndarray, totals: np.ndarray, otherwise: np.ndarray | float) -> np.ndarray:
    """Q(s, a), the mean value of each move; ``otherwise`` [E, 1] or a number for unvisited ones."""
    return np.where(visits > 0, totals / np.maximum(visits, 1), otherwise)


def ucb(visits: np.ndarray, q: np.ndarray, priors: np.ndarray, c: float, span: float) -> np.ndarray:
    """Q(s, a) + c span sqrt(ln N(s) / N(s, a)): UCB1 of Kocsis and Szepesvari 2006, whose returns span 1.

    Unvisited moves come first, in the order of ``priors``, which are random.
    """
    n = np.maximum(visits.sum(1, keepdims=True), 1)
    bonus = (c * span) * np.sqrt(np.log(n) / np.maximum(visits, 1))
    scores = np.where(visits > 0, q + bonus, FIRST + FIRST * priors)
    return np.where(priors >= 0, scores, -np.inf)


def puct(visits: np.ndarray, q: np.ndarray, priors: np.ndarray, c: float, base: float) -> np.ndarray:
    """Q(s, a) + C(s) P(s, a) sqrt(N(s)) / (1 + N(s, a)), C(s) = ln((1 + N(s) + base) / base) + c.

    Silver et al. 2018 (AlphaZero, Science 362), "Search". N(s) counts the visits of the parent.

    Args:
        visits, q, priors: [E, A]; ``q`` includes values of unvisited moves.
        c: weight of priors.
        base: visits from which the weight grows.
    """
    n = visits.sum(1, keepdims=True)
    weight = (np.log((1 + n + base) / base) + c) * np.sqrt(np.maximum(n, 1))
    return q + weight * priors / (1 + visits)


# -- Gumbel MuZero (Danihelka et al. 2022, "Policy improvement by planning with Gumbel") -------------------------------


def completed(visits: np.ndarray, q: np.ndarray, priors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Q(s, a), with the mixed value of eq. 33 for unvisited moves. values [E] of the nodes -> [E, A]"""
    n = visits.sum(1)
    seen = np.where(visits > 0, np.maximum(priors, 1e-12), 0.0)
    mean = (seen * q).sum(1) / np.maximum(seen.sum(1), 1e-12)
    mixed = (values + n * mean) / (1 + n)
    return np.where(visits > 0, q, mixed[:, None])


def raised(visits: np.ndarray, q: np.ndarray, c_visit: float, c_scale: float) -> np.ndarray:
    """sigma(q) = (c_visit + max_b N(b)) c_scale q, eq. 8, of values q [E, A] in [0, 1]."""
    return (c_visit + visits.max(1, keepdims=True)) * c_scale * q


def logarithms(priors: np.ndarray) -> np.ndarray:
    """ln P(s, a), -inf for illegal moves."""
    return np.where(priors >= 0, np.log(np.maximum(priors, 1e-12)), -np.inf)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities [E, A] of logits; 0 for -inf."""
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def catching_up(visits: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """pi'(a) - N(a) / (1 + sum_b N(b)), eq. 14: visits follow the improved policy [E, A] deterministically."""
    return np.where(policy > 0, policy - visits / (1 + visits.sum(1, keepdims=True)), -np.inf)


def halving(considered: int, simulations: int) -> np.ndarray:
    """Returns the visit counts [simulations] of the moves to visit next, by sequential halving.

    All ``considered`` moves are visited equally often; then only the better half continues, and so on, with equally
    many simulations per round.
    """
    if considered <= 1:
        return np.arange(simulations)
    rounds = int(np.ceil(np.log2(considered)))
    order: list[int] = []
    done, left = [0] * considered, considered
    while len(order) < simulations:
        for _ in range(max(1, simulations // (rounds * left))):
            order += done[:left]
            done[:left] = [n + 1 for n in done[:left]]
        left = max(2, left // 2)
    return np.array(order[:simulations])


# -- at the root -------------------------------------------------------------------------------------------------------


def with_noise(priors: np.ndarray, alpha: float, fraction: float, random: Any) -> np.ndarray:
    """(1 - fraction) P(s, a) + fraction eta_a, eta from a Dirichlet distribution over the legal moves. [E, A]"""
    legal = priors >= 0
    draws = np.where(legal, random.standard_gamma(alpha, priors.shape) + 1e-12, 0.0)
    return np.where(legal, (1 - fraction) * priors + fraction * draws / draws.sum(1, keepdims=True), -np.inf)


def tempered(visits: np.ndarray, temperature: np.ndarray | float) -> np.ndarray:
    """N(s, a)^(1/temperature) as probabilities; temperature 0 gives the most visited moves. [E, A], [E] -> [E, A]"""
    heat = np.broadcast_to(np.asarray(temperature, np.float64), len(visits))[:, None]
    share = visits / visits.max(1, keepdims=True)
    powered = np.where(heat > 0, share ** (1 / np.maximum(heat, 1e-3)), share == 1)
    return powered / powered.sum(1, keepdims=True)


def draw(shares: np.ndarray, random: Any) -> np.ndarray:
    """Draws one move for each row of probabilities [E, A] -> [E]"""
    limits = shares.cumsum(1)
    drawn: np.ndarray = (random.random(len(shares))[:, None] * limits[:, -1:] < limits).argmax(1)
    return drawn
