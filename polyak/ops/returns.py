"""Return and advantage estimators. Pure functions; time is the first axis: T steps, N environments.

One recurrence serves them all: ``y_t = x_t + c_t * y_{t+1}``, see :func:`reverse_scan`. Termination and truncation are
kept apart everywhere: ``discounts`` is 0 where the successor is terminal (nothing to bootstrap), ``cut`` is 1 wherever
an episode ends for any reason, and there ``next_values`` is the value of the true final observation.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Array = TypeVar("Array", Tensor, np.ndarray)
"""Short rollouts stay in numpy, whose operations cost a fraction of torch's there."""
LOOP_UP_TO = 32  # below this many steps a loop over numpy views beats the logarithmic scan (measured)


def reverse_scan(x: Array, coefficients: Array) -> Array:
    """Solve ``y_t = x_t + coefficients_t * y_{t+1}`` with ``y_T = 0`` backwards in time.

    Long inputs take log2(T) vectorised passes (Hillis and Steele 1986: the maps ``y -> x + c*y`` compose associatively)
    and short ones on the CPU a plain loop. Not differentiable with respect to its inputs.

    Args:
        x: [T, ...].
        coefficients: [T, ...] of the same shape.
    Returns:
        y: [T, ...].
    """
    if x.shape != coefficients.shape:
        raise ValueError(f"x and coefficients must have the same shape, got {[*x.shape]} and {[*coefficients.shape]}.")
    if isinstance(x, np.ndarray) or isinstance(coefficients, np.ndarray):
        if len(x) <= LOOP_UP_TO:
            return _loop(x, coefficients)
        return reverse_scan(torch.from_numpy(x), torch.from_numpy(coefficients)).numpy()
    with torch.no_grad():
        steps = len(x)
        if steps <= LOOP_UP_TO and x.device.type == "cpu":
            return torch.from_numpy(_loop(x.detach().numpy(), coefficients.detach().numpy()))
        y, c = x.detach().clone(), coefficients.detach().clone()
        span = 1  # y_t holds the sum over [t, t + span), c_t the product of the coefficients over it
        while span < steps:
            y[:-span] += c[:-span] * y[span:]
            c[:-span] *= c[span:].clone()
            span *= 2
        return y


def _loop(x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    y = x.copy()
    for t in range(len(x) - 2, -1, -1):
        y[t] += coefficients[t] * y[t + 1]
    return y


def gae(
    rewards: Array, values: Array, next_values: Array, discounts: Array, lam: float, cut: Array
) -> tuple[Array, Array]:
    """Generalised advantage estimation, Schulman et al. 2016 (arXiv:1506.02438) eq. 16. Of tensors, or of arrays.

    Args:
        rewards: [T, N] reward received after step t.
        values: [T, N] V(s_t).
        next_values: [T, N] V(s_{t+1}) of the true successor, also at a time limit.
        discounts: [T, N] gamma, or 0 where s_{t+1} is terminal.
        lam: trace decay lambda in [0, 1].
        cut: [T, N] 1 (or True) where an episode ends, terminated or truncated: the trace stops there.
    Returns:
        advantages [T, N] and value targets (advantages + values) [T, N].
    """
    deltas = rewards + discounts * next_values - values
    advantages = reverse_scan(deltas, discounts * lam * (cut == 0))
    return advantages, advantages + values


def discounted_returns(rewards: Tensor, next_values: Tensor, discounts: Tensor, cut: Tensor) -> Tensor:
    """Discounted sum of rewards to the end of the episode, bootstrapped where it was cut (Sutton and Barto eq. 3.8).

    ``G_t = r_t + discounts_t * (next_values_t if the episode ends at t, or t is the last row, else G_{t+1})``.

    Args:
        rewards, next_values, discounts, cut: [T, N] as in :func:`gae`; ``next_values`` is read only at cuts and in the
            last row.
    Returns:
        returns [T, N].
    """
    ends = cut.to(torch.bool).clone()
    ends[-1] = True
    return reverse_scan(torch.where(ends, rewards + discounts * next_values, rewards), discounts * ~ends)


def n_step_returns(rewards: Tensor, next_values: Tensor, discounts: Tensor, cut: Tensor, n: int) -> Tensor:
    """n-step bootstrapped returns, Sutton and Barto eq. 7.1; windows end at episode ends and at the last row.

    ``G_t = r_t + ... + g^(k-1) r_{t+k-1} + g^k next_values_{t+k-1}`` with k <= n the steps left in the window.

    Args:
        rewards, next_values, discounts, cut: [T, N] as in :func:`gae`.
        n: length of a window, at least 1.
    Returns:
        returns [T, N].
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    ends = cut.to(torch.bool)[:-1]
    returns = rewards + discounts * next_values
    for _ in range(min(n, len(rewards)) - 1):
        successor = torch.cat([torch.where(ends, next_values[:-1], returns[1:]), next_values[-1:]])
        returns = rewards + discounts * successor
    return returns
