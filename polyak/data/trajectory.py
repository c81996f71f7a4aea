"""Experience in the order in which it came: what estimators of returns and advantages read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyak.data.batch import TensorObs
from polyak.data.step import NO_EXTRAS
from polyak.ops.returns import gae

LOOP_UP_TO = 32  # below this many steps a loop over numpy views beats torch's logarithmic scan (measured)


class Trajectory(NamedTuple):
    """T successive steps of N environments; episodes may begin and end anywhere.

    ``observations[t + 1]`` follows row t, except where ``cuts[t]``: there the next episode begins with it, and the
    value of what truly followed is ``final_values[t]``. With the values [T + 1, N] of the observations, ``gae`` and
    ``vtrace`` (:mod:`polyak.ops.returns`) both take ``rewards, values[:-1], trajectory.next_values(values), discounts``
    and ``cuts``.
    """

    observations: TensorObs  # [T + 1, N, ...]
    actions: Tensor  # [T, N, A]
    rewards: Tensor  # [T, N]
    discounts: Tensor  # [T, N] gamma, or 0 where the successor is terminal
    cuts: Tensor  # [T, N] bool: an episode ended with this row, terminated or truncated
    log_probs: Tensor  # [T, N] of the policy that acted
    final_values: Tensor  # [T, N] value of the true successor; read at cuts only, and 0 unless truncated
    extras: dict[str, Tensor] = NO_EXTRAS  # name -> [T, N, ...]

    def next_values(self, values: Tensor) -> Tensor:
        """Values [T, N] of the true successors, from those [T + 1, N] of the observations."""
        return torch.where(self.cuts, self.final_values, values[1:])


def gae_of_arrays(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    discounts: np.ndarray,
    lam: float,
    cuts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`~polyak.ops.returns.gae` of arrays in main memory: numpy's operations cost a fraction of torch's there."""
    if len(rewards) > LOOP_UP_TO:
        r, v, then, gammas, ends = map(torch.from_numpy, (rewards, values, next_values, discounts, cuts))
        advantages, targets = gae(r, v, then, gammas, lam, ends)
        return advantages.numpy(), targets.numpy()
    y = rewards + discounts * next_values - values
    traces = discounts * lam * (cuts == 0)
    for t in range(len(y) - 2, -1, -1):
        y[t] += traces[t] * y[t + 1]
    return y, y + values
