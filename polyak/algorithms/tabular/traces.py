"""Eligibility traces: each temporal difference updates all earlier pairs in proportion to their traces.

SARSA(lambda), Rummery and Niranjan 1994; Q(lambda), Watkins 1989, whose traces end at the first action that is not
greedy; in between, and expected, Q(sigma, lambda), Yang et al. 2018, IJCAI, arXiv:1802.03171. Sutton and Barto ch. 12.

Shapes: N environments, S states, A actions, P = S A pairs.
"""

from typing import NamedTuple

import numpy as np

from polyak.algorithms.tabular.choosing import expected, probability, step_size, total
from polyak.algorithms.tabular.walking import Kernel, TableTransition

SMALLEST = 1e-12
"""Smallest nonzero trace; smaller ones become 0."""
KINDS = ("accumulating", "replacing", "dutch")
REPLACING, DUTCH = 1, 2

# -- differences -------------------------------------------------------------------------------------------------------


class Traces(NamedTuple):
    """The table, and the traces of each environment's episode."""

    q: np.ndarray  # [1, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [1, S, A] int64
    traces: np.ndarray  # [N, P]
    pairs: np.ndarray  # [N, P] int64, pairs with a nonzero trace first
    counts: np.ndarray  # [N] int64, the number of those
    gamma: float
    sigma: float
    greedy: bool
    lambda_: float
    kind: int  # index into KINDS


def difference(tables: Traces, moment: TableTransition) -> tuple[float, float]:
    """delta = R + gamma [sigma rho q(S', A') + (1 - sigma) sum_a pi(a | S') q(S', a)] - q(S, A) (Sutton and Barto
    section 12.9), and the factor of traces: sigma rho + (1 - sigma) pi(A' | S'). q [1, S, A] -> [], []"""
    delta, share = moment.reward - total(tables.q, moment.state, moment.action), 0.0
    if moment.terminated:
        return delta, share
    state, action = moment.next_state, moment.next_action
    epsilon = 0.0 if tables.greedy else moment.epsilon
    chance = probability(tables.q, tables.legal, state, action, epsilon, not tables.greedy)
    if tables.sigma > 0.0:
        ratio = chance / moment.next_chance if tables.greedy else 1.0
        delta += tables.gamma * tables.sigma * ratio * total(tables.q, state, action)
        share += tables.sigma * ratio
    if tables.sigma < 1.0:
        delta += tables.gamma * (1.0 - tables.sigma) * expected(tables.q, tables.legal, state, epsilon)
        share += (1.0 - tables.sigma) * chance
    return delta, share


# -- the rule ----------------------------------------------------------------------------------------------------------


def learn(tables: Traces, moment: TableTransition, draws: np.ndarray) -> None:
    """Set the pair's trace, update every pair by its trace, and decay traces. traces [N, P], draws [W] (unused)."""
    env, n_actions = moment.env, tables.q.shape[2]
    alpha = step_size(tables.visits, 0, moment.state, moment.action, moment.alpha)
    delta, share = difference(tables, moment)

    pair = moment.state * n_actions + moment.action
    trace = tables.traces[env, pair]
    if trace == 0.0:
        tables.pairs[env, tables.counts[env]] = pair
        tables.counts[env] += 1
    if tables.kind == REPLACING:
        trace = 0.0
    elif tables.kind == DUTCH:
        trace *= 1.0 - alpha
    tables.traces[env, pair] = trace + 1.0

    kept = 0
    fading = 0.0 if moment.ended else tables.gamma * tables.lambda_ * share
    for place in range(tables.counts[env]):
        pair = tables.pairs[env, place]
        trace = tables.traces[env, pair]
        tables.q[0, pair // n_actions, pair % n_actions] += alpha * delta * trace
        trace *= fading
        if trace < SMALLEST:
            tables.traces[env, pair] = 0.0
        else:
            tables.traces[env, pair] = trace
            tables.pairs[env, kept] = pair
            kept += 1
    tables.counts[env] = kept


KERNEL = Kernel(learn, (difference,), Traces)
