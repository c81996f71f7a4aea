"""Experience in temporal order, for estimators of returns and advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polyak.experience.batch import TensorObs
from polyak.experience.step import NO_EXTRAS


class Trajectory(NamedTuple):
    """T successive steps of N environments; episodes may begin and end anywhere.

    ``observations[t + 1]`` follows row t, except where ``cuts[t]``: there the next episode begins with it, and the
    value of the true successor is ``final_values[t]``. With the values [T + 1, N] of the observations, ``gae`` and
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
