"""SAC with one more term in its critics' objective, as conservative Q-learning has it.

Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning", arXiv:2006.04779, eq. 4 with uniform
actions alone. Shapes: B rows, A action dimensions, K critics, M actions.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithms.sac import SAC, SACLearner
from polyak.experience import Transition
from polyak.hyperparameters.declaration import NonNegative
from polyak.learning.learner import Learner, Objective, Tunable

ACTIONS = 4


def conservative_gap(random_q: Tensor, q: Tensor) -> Tensor:
    """sum_k E[log sum_a exp Q_k(s, a) - Q_k(s, a_data)]. random_q [K, M, B], q [K, B] -> []"""
    return (random_q.logsumexp(1) - q).mean(1).sum()


class ConservativeLearner(SACLearner):
    """Adds the gap, and nothing else."""

    conservative_weight: Tunable[Tensor]

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """SAC's, plus the gap between random actions and those of the batch."""
        random = [2 * torch.rand_like(batch.actions) - 1 for _ in range(ACTIONS)]
        random_q = torch.stack([self.policy.critic.q_values(batch.observations, actions) for actions in random], 1)
        gap = conservative_gap(random_q, q)
        return super().critic_objective(batch, q, target).plus(self.conservative_weight * gap, gap=gap.detach())


@dataclass(eq=False, repr=False)
class ConservativeSAC(SAC):
    """SAC whose critics think little of what was not tried."""

    _: KW_ONLY
    conservative_weight: NonNegative = 1.0
    """Weight of the term."""

    learner_class: ClassVar[type[Learner]] = ConservativeLearner
