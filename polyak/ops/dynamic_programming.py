"""Bellman's equations of a finite Markov decision process with known outcomes (Sutton and Barto ch. 3 and 4).

Shapes: S states, A actions, O outcomes, P = S A pairs of a state and an action, numbered s A + a. Pure functions of
tensors. ``continuing`` [O] is the probability of an outcome if the episode continues, and 0 if it ends, so that
terminal states have value 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def action_values(
    values: Tensor, mean_rewards: Tensor, pairs: Tensor, continuing: Tensor, successors: Tensor, gamma: float
) -> Tensor:
    """q(s, a) = sum_s',r p(s', r | s, a) [r + gamma v(s')], Sutton and Barto eq. 4.6.

    Args:
        values: [S] v.
        mean_rewards: [S, A] expected reward.
        pairs: [O] int64 pair of each outcome.
        continuing: [O].
        successors: [O] int64 next states.
        gamma: discount factor.

    Returns:
        [S, A].
    """
    ahead = torch.zeros(mean_rewards.numel(), dtype=values.dtype).index_add_(0, pairs, continuing * values[successors])
    return mean_rewards + gamma * ahead.view_as(mean_rewards)


def greedy_values(q: Tensor, legal: Tensor) -> Tensor:
    """max_a q(s, a) over the actions that a state has, Sutton and Barto eq. 4.1. q, legal [S, A] -> [S]"""
    return q.masked_fill(~legal, -torch.inf).amax(1)


def greedy_actions(q: Tensor, legal: Tensor, tolerance: float = 0.0) -> Tensor:
    """argmax_a q(s, a): the first of the best actions.

    Args:
        q: [S, A].
        legal: [S, A] bool.
        tolerance: values this close to the best are considered equal, so that rounding does not decide.

    Returns:
        [S] int64.
    """
    q = q.masked_fill(~legal, -torch.inf)
    return (q >= q.amax(1, keepdim=True) - tolerance).int().argmax(1)


def policy_values(
    policy: Tensor, mean_rewards: Tensor, pairs: Tensor, continuing: Tensor, successors: Tensor, gamma: float
) -> Tensor:
    """Exact values of a policy: the solution of v = r_pi + gamma P_pi v, Sutton and Barto eq. 4.4.

    States from which the policy gets no rewards and never terminates have value 0, even without a discount.

    Args:
        policy: [S, A] probabilities of actions.
        mean_rewards: [S, A] expected reward.
        pairs: [O] int64 pair of each outcome.
        continuing: [O].
        successors: [O] int64 next states.
        gamma: discount factor.

    Returns:
        [S].

    Raises:
        ValueError: gamma = 1, and the policy stays for ever in states where it collects rewards.
    """
    n_states, n_actions = mean_rewards.shape
    moves = torch.zeros(n_states * n_states, dtype=mean_rewards.dtype)
    weights = policy.reshape(-1)[pairs] * continuing
    moves.index_add_(0, pairs // n_actions * n_states + successors, weights)
    moves = moves.view(n_states, n_states)
    rewards = (policy * mean_rewards).sum(1)
    if gamma < 1:
        solved: Tensor = torch.linalg.solve(torch.eye(n_states, dtype=moves.dtype) - gamma * moves, rewards)
        return solved
    live = _leads_to(moves, rewards != 0) & _leads_to(moves, moves.sum(1) < 1 - 1e-9)
    if bool((_leads_to(moves, rewards != 0) & ~live).any()):
        raise ValueError(
            "gamma=1 cannot be used: under this policy some episodes never end, and their rewards add up to no "
            "number. Use gamma < 1, or begin with a policy under which all episodes end."
        )
    values = torch.zeros(n_states, dtype=moves.dtype)
    inner = moves[live][:, live]
    values[live] = torch.linalg.solve(torch.eye(len(inner), dtype=moves.dtype) - inner, rewards[live])
    return values


def rewards_with_entropy(mean_rewards: Tensor, policy: Tensor, temperature: float) -> Tensor:
    """r(s, a) - temperature ln pi(a | s), whose mean under pi is r_pi(s) + temperature H(pi(. | s)).

    The ordinary values of a policy with these rewards are its soft values: Haarnoja et al. 2018 (arXiv:1801.01290)
    eq. 3 and the proof of lemma 1. An action of probability 0 keeps its reward.

    Args:
        mean_rewards: [S, A] r.
        policy: [S, A] pi.
        temperature: weight of the entropy.

    Returns:
        [S, A].
    """
    return mean_rewards - temperature * torch.where(policy > 0, policy, 1.0).log()


def soft_policy(q: Tensor, legal: Tensor, temperature: float) -> Tensor:
    """pi(a | s) proportional to exp(q(s, a) / temperature), over the actions that a state has.

    Haarnoja et al. 2018 (arXiv:1801.01290) eq. 4. q, legal [S, A] -> [S, A]
    """
    return (q.masked_fill(~legal, -torch.inf) / temperature).softmax(1)


def _leads_to(moves: Tensor, goal: Tensor) -> Tensor:
    """Returns the states from which a goal is reached with positive probability. moves [S, S], goal [S] bool -> [S]
    bool"""
    reached = goal
    while True:
        wider = reached | ((moves > 0).to(moves.dtype) @ reached.to(moves.dtype) > 0)
        if bool((wider == reached).all()):
            return reached
        reached = wider
