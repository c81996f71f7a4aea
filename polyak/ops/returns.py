"""Return and advantage estimators. Pure functions of tensors; time is the first axis: T steps, N environments.

All solve one recurrence: ``y_t = x_t + c_t * y_{t+1}``, see :func:`reverse_scan`. Termination and truncation are
distinguished everywhere: ``discounts`` is 0 if the successor is terminal (no bootstrapping), ``cuts`` is 1 (or True)
wherever an episode ends for any reason, and there ``next_values`` is the value of the true final observation. A
:class:`~polyak.experience.trajectory.Trajectory` provides all of these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def reverse_scan(x: Tensor, coefficients: Tensor) -> Tensor:
    """Solves ``y_t = x_t + coefficients_t * y_{t+1}`` with ``y_T = 0`` backwards in time.

    Takes log2(T) vectorised passes (Hillis and Steele 1986: the maps ``y -> x + c*y`` compose associatively). Not
    differentiable with respect to its inputs.

    Args:
        x: [T, ...].
        coefficients: [T, ...] of the same shape.
    Returns:
        y: [T, ...].
    """
    if x.shape != coefficients.shape:
        raise ValueError(f"x and coefficients must have the same shape, got {[*x.shape]} and {[*coefficients.shape]}.")
    y, c = x.detach().clone(), coefficients.detach().clone()
    span = 1  # y_t holds the sum over [t, t + span), c_t the product of the coefficients over it
    while span < len(x):
        y[:-span] += c[:-span] * y[span:]
        c[:-span] *= c[span:].clone()
        span *= 2
    return y


def gae(
    rewards: Tensor, values: Tensor, next_values: Tensor, discounts: Tensor, lam: float, cuts: Tensor
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation, Schulman et al. 2016 (arXiv:1506.02438) eq. 16.

    Args:
        rewards: [T, N] reward received after step t.
        values: [T, N] V(s_t).
        next_values: [T, N] V(s_{t+1}) of the true successor, also at truncation.
        discounts: [T, N] gamma, or 0 if s_{t+1} is terminal.
        lam: trace decay lambda in [0, 1].
        cuts: [T, N] 1 (or True) where an episode ends, terminated or truncated: the trace stops there.
    Returns:
        advantages [T, N] and value targets (advantages + values) [T, N].
    """
    deltas = rewards + discounts * next_values - values
    advantages = reverse_scan(deltas, discounts * lam * (cuts == 0))
    return advantages, advantages + values


def discounted_returns(rewards: Tensor, next_values: Tensor, discounts: Tensor, cuts: Tensor) -> Tensor:
    """Discounted sum of rewards to the end of the episode, bootstrapped at truncation (Sutton and Barto eq. 3.8).

    ``G_t = r_t + discounts_t * (next_values_t if the episode ends at t, or t is the last row, else G_{t+1})``.

    Args:
        rewards, next_values, discounts, cuts: [T, N] as in :func:`gae`; ``next_values`` is used only at cuts and in the
            last row.
    Returns:
        returns [T, N].
    """
    ends = cuts.to(torch.bool).clone()
    ends[-1] = True
    return reverse_scan(torch.where(ends, rewards + discounts * next_values, rewards), discounts * ~ends)


def n_step_returns(rewards: Tensor, next_values: Tensor, discounts: Tensor, cuts: Tensor, n: int) -> Tensor:
    """n-step bootstrapped returns, Sutton and Barto eq. 7.1; windows end at episode ends and at the last row.

    ``G_t = r_t + ... + g^(k-1) r_{t+k-1} + g^k next_values_{t+k-1}`` with k <= n the steps left in the window.

    Args:
        rewards, next_values, discounts, cuts: [T, N] as in :func:`gae`.
        n: length of a window, at least 1.
    Returns:
        returns [T, N].
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    ends = cuts.to(torch.bool)[:-1]
    returns = rewards + discounts * next_values
    for _ in range(min(n, len(rewards)) - 1):
        successor = torch.cat([torch.where(ends, next_values[:-1], returns[1:]), next_values[-1:]])
        returns = rewards + discounts * successor
    return returns


@torch.no_grad()
def vtrace(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    discounts: Tensor,
    cuts: Tensor,
    lam: float | Tensor = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float | None = None,
) -> tuple[Tensor, Tensor]:
    """V-trace targets, Espeholt et al. 2018 (arXiv:1802.01561) eq. 1, and the advantages of its policy gradient.

    ``v_s = V(x_s) + sum over t >= s of gamma^(t-s) (c_s ... c_(t-1)) rho_t (r_t + gamma V(x_(t+1)) - V(x_t))`` with
    ``rho_t = min(rho_bar, pi/mu)`` and ``c_t = lam * min(c_bar, pi/mu)``; the sum ends with the episode, or with the
    last row. On policy, with both bars at least 1, ``v_s`` is the lambda-return. No gradient flows through the results.

    Args:
        log_rhos: [T, N] log pi(a_t|x_t) - log mu(a_t|x_t): of the target policy minus that of the behaviour policy.
        rewards, values, next_values, discounts, cuts: [T, N] as in :func:`gae`; values of the target policy.
        lam: trace decay lambda in [0, 1] (remark 2 of the paper).
        rho_bar: clipping that determines whose value function is learned; infinite: that of pi.
        c_bar: clipping that determines how fast; at most ``rho_bar``.
        pg_rho_bar: clipping of the ratio in the policy gradient (section 4.2); ``None``: ``rho_bar``.
    Returns:
        targets ``v_s`` [T, N] and advantages ``rho_s (r_s + gamma v_(s+1) - V(x_s))`` [T, N], where ``v_(s+1)`` is
        ``next_values`` at cuts and in the last row, and the ratio is clipped at ``pg_rho_bar``.
    """
    if not 0 < c_bar <= rho_bar:
        raise ValueError(f"c_bar must be positive and at most rho_bar, got c_bar={c_bar} and rho_bar={rho_bar}.")
    ratios = log_rhos.exp()
    rhos, alive = ratios.clamp(max=rho_bar), discounts * (cuts == 0)
    deltas = rhos * (rewards + discounts * next_values - values)
    targets = values + reverse_scan(deltas, alive * (lam * ratios.clamp(max=c_bar)))
    ends = cuts.to(torch.bool)[:-1]
    successors = torch.cat([torch.where(ends, next_values[:-1], targets[1:]), next_values[-1:]])
    weights = rhos if pg_rho_bar is None else ratios.clamp(max=pg_rho_bar)
    return targets, weights * (rewards + discounts * successors - values)


def explained_variance_of_tensors(y_pred: Tensor, y_true: Tensor) -> Tensor:
    """Computes :func:`explained_variance` without synchronising with the host: []"""
    variance = _variance(y_true)
    return torch.where(variance == 0, torch.nan, 1 - _variance(y_true - y_pred) / variance)


def explained_variance(y_pred: Any, y_true: Any) -> float:
    """1 - Var[y_true - y_pred] / Var[y_true]: 1 is perfect, 0 no better than the mean; NaN if y_true is constant.

    Takes numpy arrays of one shape.
    """
    variance = _variance(y_true)
    return float("nan") if variance == 0 else float(1 - _variance(y_true - y_pred) / variance)


def _variance(x: Any) -> Any:
    """Computes ``np.var`` at a third of its cost, which matters for short rollouts."""
    apart = (x := x.reshape(-1)) - x.sum() / len(x)
    return apart.dot(apart) / len(x)
