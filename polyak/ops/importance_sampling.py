"""Off-policy estimates of a policy's return from episodes of a behaviour policy.

Pure functions of tensors. After the end of an episode its ratios are 1 and its rewards 0: arrays of episodes of unequal
lengths are padded with log-ratios, rewards and values of 0.

Precup, Sutton and Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation" (importance sampling, per decision
and weighted); Jiang and Li 2016, arXiv:1511.03722 (doubly robust); Thomas and Brunskill 2016, arXiv:1604.00923
(weighted doubly robust). rho_t is the product of pi(a|s) / b(a|s) up to and including step t.

Shapes: E episodes, T steps of the longest, ``...`` any number of resamples.
"""

from __future__ import annotations

import torch
from torch import Tensor

# -- one number per episode, whose mean is the estimate: unbiased ------------------------------------------------------


def importance_sampling(log_ratios: Tensor, rewards: Tensor, gamma: float) -> Tensor:
    """rho_T sum_t gamma^t r_t: each return times the ratio of its whole episode. Both [E, T] -> [E]"""
    return log_ratios.sum(1).exp() * (discounts(rewards, gamma) * rewards).sum(1)


def per_decision(log_ratios: Tensor, rewards: Tensor, gamma: float) -> Tensor:
    """sum_t gamma^t rho_t r_t: a reward does not depend on actions after it. Both [E, T] -> [E]"""
    return (discounts(rewards, gamma) * log_ratios.cumsum(1).exp() * rewards).sum(1)


def doubly_robust(log_ratios: Tensor, rewards: Tensor, q: Tensor, v: Tensor, gamma: float) -> Tensor:
    """V(s_0) + sum_t gamma^t rho_t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t)), which is arXiv:1511.03722 eq. 10 unrolled.

    Unbiased if the ratios or q and v are correct; the more accurate q and v are, the smaller its variance.

    Args:
        log_ratios, rewards: [E, T].
        q: [E, T] of the recorded actions.
        v: [E, T + 1] means of the action values under the policy. After the last step it is the value of the state in
            which the episode was truncated, or 0 if that was terminal.
        gamma: discount of one step.

    Returns:
        [E]
    """
    rho = log_ratios.cumsum(1).exp()
    return v[:, 0] + (discounts(rewards, gamma) * rho * (rewards + gamma * v[:, 1:] - q)).sum(1)


# -- one estimate for all, with weights that add up to 1: biased, consistent, and of lower variance --------------------


def weighted_importance_sampling(
    log_ratios: Tensor, rewards: Tensor, gamma: float, counts: Tensor | None = None, leave_one_out: bool = False
) -> Tensor:
    """sum_i rho_i G_i / sum_i rho_i: always within the range of the returns.

    Args:
        log_ratios, rewards: [E, T].
        gamma: discount of one step.
        counts: [..., E] multiplicity of each episode; ``None``: one.
        leave_one_out: return the estimates [E] without each of the episodes in turn; without ``counts``.

    Returns:
        [...], or [E]
    """
    returns = (discounts(rewards, gamma) * rewards).sum(1)
    rho = _scaled(log_ratios.sum(1, keepdim=True)).squeeze(1)
    return _ratio(_total(rho * returns, counts, leave_one_out), _total(rho, counts, leave_one_out))


def weighted_per_decision(
    log_ratios: Tensor, rewards: Tensor, gamma: float, counts: Tensor | None = None, leave_one_out: bool = False
) -> Tensor:
    """sum_t gamma^t sum_i rho_{i,t} r_{i,t} / sum_i rho_{i,t}: each mean reward is within the range of its step's
    rewards.

    Arguments and result: see :func:`weighted_importance_sampling`.
    """
    rho = _scaled(log_ratios.cumsum(1))
    means = _ratio(_total(rho * rewards, counts, leave_one_out), _total(rho, counts, leave_one_out))
    return (discounts(rewards, gamma) * means).sum(-1)


def weighted_doubly_robust(
    log_ratios: Tensor,
    rewards: Tensor,
    q: Tensor,
    v: Tensor,
    gamma: float,
    counts: Tensor | None = None,
    leave_one_out: bool = False,
) -> Tensor:
    """:func:`doubly_robust` with w_{i,t} = rho_{i,t} / sum_j rho_{j,t} for rho_{i,t} / E, arXiv:1604.00923 section 5.

    Arguments: see :func:`doubly_robust` and :func:`weighted_importance_sampling`; the result is like the latter's.
    """
    rho, first = _scaled(log_ratios.cumsum(1)), v[:, 0]
    errors, weights = (_total(x, counts, leave_one_out) for x in (rho * (rewards + gamma * v[:, 1:] - q), rho))
    start = _ratio(_total(first, counts, leave_one_out), _total(torch.ones_like(first), counts, leave_one_out))
    return start + (discounts(rewards, gamma) * _ratio(errors, weights)).sum(-1)


# -- shared functions --------------------------------------------------------------------------------------------------


def effective_size(log_ratios: Tensor) -> Tensor:
    """(sum_i rho_i)^2 / sum_i rho_i^2: the number of equally weighted episodes with the same variance (Kong 1992).

    [E, T] -> [], in [1, E]; 0 if no episode is possible under the policy
    """
    rho = _scaled(log_ratios.sum(1, keepdim=True))
    return _ratio(rho.sum() ** 2, (rho**2).sum())


def discounts(rewards: Tensor, gamma: float) -> Tensor:
    """gamma^t: [E, T] -> [T]"""
    return gamma ** torch.arange(rewards.shape[1], dtype=rewards.dtype, device=rewards.device)


def _total(values: Tensor, counts: Tensor | None, leave_one_out: bool) -> Tensor:
    """Sums over episodes [E, ...] with their multiplicities, or without each in turn."""
    if leave_one_out:
        return values.sum(0) - values
    return values.sum(0) if counts is None else counts.to(values.dtype) @ values


def _scaled(log_ratios: Tensor) -> Tensor:
    """Returns ratios [E, T], each column divided by its maximum to prevent overflow."""
    lowest = torch.finfo(log_ratios.dtype).min
    return (log_ratios - log_ratios.amax(0).clamp_min(lowest)).exp()


def _ratio(over: Tensor, under: Tensor) -> Tensor:
    """Divides; 0 if the denominator is 0."""
    return torch.where(under > 0, over / under.clamp_min(torch.finfo(under.dtype).tiny), torch.zeros_like(over))
