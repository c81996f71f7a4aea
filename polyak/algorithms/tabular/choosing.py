"""Epsilon-greedy action selection from tables.

These functions are called in loops that numba compiles (:mod:`polyak.algorithms.tabular.walking`): plain Python on
single numbers, with random numbers drawn by the caller.

Shapes: K tables, S states, A actions. ``q`` [K, S, A] are action values, which are summed over K; ``legal`` [S, A]
marks the actions that a state has.
"""

import numpy as np


def total(q: np.ndarray, state: int, action: int) -> float:
    """sum_k q_k(s, a). q [K, S, A] -> []"""
    value = q[0, state, action]
    for table in range(1, q.shape[0]):
        value += q[table, state, action]
    return value


def best(q: np.ndarray, legal: np.ndarray, state: int) -> tuple[float, int, int]:
    """max_a q(s, a), the number of actions that attain it, and the number of legal actions. q [K, S, A], legal [S, A]
    -> [], [], []"""
    value, ties, n = -np.inf, 0, 0
    for action in range(q.shape[2]):
        if legal[state, action]:
            n += 1
            other = total(q, state, action)
            if other > value:
                value, ties = other, 1
            elif other == value:
                ties += 1
    return value, ties, n


def choose(
    q: np.ndarray, legal: np.ndarray, state: int, epsilon: float, explores: float, which: float
) -> tuple[int, float]:
    """Returns an epsilon-greedy action (Sutton and Barto section 2.2) and its probability; ties are broken uniformly.

    Args:
        q: [K, S, A].
        legal: [S, A].
        state: s.
        epsilon: probability of a random action.
        explores, which: uniform in [0, 1): decide whether the action is random, and which one is taken.
    """
    value, ties, n = best(q, legal, state)
    greedy = explores >= epsilon
    left = int(which * (ties if greedy else n))
    for action in range(q.shape[2]):
        if legal[state, action]:
            is_best = total(q, state, action) == value
            if is_best or not greedy:
                if left == 0:
                    return action, epsilon / n + (1.0 - epsilon) * is_best / ties
                left -= 1
    return -1, 0.0  # not reached: every state has an action


def probability(q: np.ndarray, legal: np.ndarray, state: int, action: int, epsilon: float, ties_count: bool) -> float:
    """pi(a | s) of the epsilon-greedy policy. q [K, S, A], legal [S, A] -> []

    ``ties_count``: the best actions share 1 - epsilon, as in :func:`choose`; otherwise this action, if it is one of
    them, has all of it.
    """
    value, ties, n = best(q, legal, state)
    greedy = total(q, state, action) == value
    return epsilon / n + (1.0 - epsilon) * greedy / (ties if ties_count else 1)


def expected(q: np.ndarray, legal: np.ndarray, state: int, epsilon: float) -> float:
    """sum_a pi(a | s) q(s, a) of the epsilon-greedy policy; epsilon = 0 gives the maximum. q [K, S, A] -> []"""
    value, _, n = best(q, legal, state)
    if epsilon == 0.0:
        return value
    mean = 0.0
    for action in range(q.shape[2]):
        if legal[state, action]:
            mean += total(q, state, action)
    return epsilon * mean / n + (1.0 - epsilon) * value


def step_size(visits: np.ndarray, table: int, state: int, action: int, alpha: float) -> float:
    """Count a visit, and return the step size alpha; a negative alpha gives 1 / n, for averages. visits [K, S, A] -> []"""
    visits[table, state, action] += 1
    return alpha if alpha >= 0.0 else 1.0 / visits[table, state, action]


PARTS = (total, best, choose, probability, expected, step_size)
"""Functions that a compiled loop may call."""
