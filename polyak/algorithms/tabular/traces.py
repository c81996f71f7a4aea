"""Eligibility traces: each temporal difference, as far as all pairs before it are to thank for it.

SARSA(lambda), Rummery and Niranjan 1994; Q(lambda), Watkins 1989, where traces end with the first action that is not
greedy; in between, and expected, Q(sigma, lambda), Yang et al. 2018, IJCAI, arXiv:1802.03171. Sutton and Barto ch. 12.

Shapes: N environments, S states, A actions, P = S A pairs.
"""

from typing import NamedTuple

import numpy as np

from polyak.algorithms.tabular.choosing import expected, probability, step_size, total
from polyak.algorithms.tabular.walking import Moment, Rule

SMALLEST = 1e-12
"""Of a trace: a smaller one is forgotten."""
KINDS = ("accumulating", "replacing", "dutch")
REPLACING, DUTCH = 1, 2

# -- differences -------------------------------------------------------------------------------------------------------


class Traces(NamedTuple):
    """The table, and what each environment's episode owes to each pair."""

    q: np.ndarray  # [1, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [1, S, A] int64
    traces: np.ndarray  # [N, P]
    pairs: np.ndarray  # [N, P] int64, those with a trace first
    counts: np.ndarray  # [N] int64, how many those are
    gamma: float
    sigma: float
    greedy: bool
    lambda_: float
    kind: int  # among KINDS


def difference(mind: Traces, moment: Moment) -> tuple[float, float]:
    """delta = R + gamma [sigma rho q(S', A') + (1 - sigma) sum_a pi(a | S') q(S', a)] - q(S, A) (Sutton
    and Barto section 12.9), and the share of traces that passes on: sigma rho + (1 - sigma) pi(A' | S'). q [1, S, A] ->
    [], []"""
    delta, share = moment.reward - total(mind.q, moment.state, moment.action), 0.0
    if moment.terminated:
        return delta, share
    state, action = moment.next_state, moment.next_action
    epsilon = 0.0 if mind.greedy else moment.epsilon
    chance = probability(mind.q, mind.legal, state, action, epsilon, not mind.greedy)
    if mind.sigma > 0.0:
        ratio = chance / moment.next_chance if mind.greedy else 1.0
        delta += mind.gamma * mind.sigma * ratio * total(mind.q, state, action)
        share += mind.sigma * ratio
    if mind.sigma < 1.0:
        delta += mind.gamma * (1.0 - mind.sigma) * expected(mind.q, mind.legal, state, epsilon)
        share += (1.0 - mind.sigma) * chance
    return delta, share


# -- the rule ----------------------------------------------------------------------------------------------------------


def learn(mind: Traces, moment: Moment, draws: np.ndarray) -> None:
    """Mark the pair, move every pair by its trace, let traces fade. traces [N, P], draws [W] (none)."""
    env, n_actions = moment.env, mind.q.shape[2]
    alpha = step_size(mind.visits, 0, moment.state, moment.action, moment.alpha)
    delta, share = difference(mind, moment)

    pair = moment.state * n_actions + moment.action
    trace = mind.traces[env, pair]
    if trace == 0.0:
        mind.pairs[env, mind.counts[env]] = pair
        mind.counts[env] += 1
    if mind.kind == REPLACING:
        trace = 0.0
    elif mind.kind == DUTCH:
        trace *= 1.0 - alpha
    mind.traces[env, pair] = trace + 1.0

    kept = 0
    fading = 0.0 if moment.ended else mind.gamma * mind.lambda_ * share
    for place in range(mind.counts[env]):
        pair = mind.pairs[env, place]
        trace = mind.traces[env, pair]
        mind.q[0, pair // n_actions, pair % n_actions] += alpha * delta * trace
        trace *= fading
        if trace < SMALLEST:
            mind.traces[env, pair] = 0.0
        else:
            mind.traces[env, pair] = trace
            mind.pairs[env, kept] = pair
            kept += 1
    mind.counts[env] = kept


RULE = Rule(learn, (difference,), Traces)
