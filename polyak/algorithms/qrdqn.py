"""Quantile Regression DQN (QR-DQN).

Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", arXiv:1710.10044. Equation and
algorithm numbers refer to it.

Shapes: B batch rows, A actions, N quantiles.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.dqn import DQN, DQNLearner, taken
from polyak.experience import Transition
from polyak.hyperparameters.declaration import Fraction, LearningRate, NonNegative
from polyak.learning.learner import Learner, Objective, OptimizerRecipe
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.encoders import Obs
from polyak.nn.policies.value import QuantileNetwork, ValuePolicy
from polyak.ops.distributional import midpoints, quantile_huber_loss

# -- one gradient step -------------------------------------------------------------------------------------------------


class QRDQNLearner(DQNLearner):
    """Quantiles of returns at fixed levels."""

    def predicted(self, batch: Transition) -> Tensor:
        """Returns the online network's quantiles: [B, N, A]"""
        return self.quantiles(self.policy.q_net, batch.observations)

    def quantiles(self, network: Any, observations: Obs) -> Tensor:
        """Returns the quantiles of every action, by one of the two networks: [B, N, A]"""
        quantiles: Tensor = network.quantiles(observations)
        return quantiles

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns the targets' quantiles, algorithm 1. -> [B, N]"""
        quantiles = self.quantiles(self.policy.q_net_target, batch.next_observations)
        returns = self.backup(batch, quantiles.mean(1), quantiles)
        return self.rewards(batch)[:, None] + batch.discounts[:, None] * returns

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the quantile regression loss of eq. 10. Quantiles q [B, N, A] of every action, target [B, N] of those
        taken"""
        chosen = taken(q, batch.actions.long())
        losses = quantile_huber_loss(chosen, target, midpoints(chosen.shape[1], chosen.device))
        return Objective((batch.weights * losses).mean(), td_error=losses.detach())


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class QRDQN(DQN):
    """Quantile Regression DQN: learns quantiles of returns, and acts by their means (arXiv:1710.10044)."""

    learning_rate: LearningRate = 5e-5
    _: KW_ONLY
    exploration_fraction: Fraction = 0.005
    """Fraction of training over which the exploration rate falls."""
    exploration_final_eps: Fraction = 0.01
    """Final probability of a random action."""
    max_grad_norm: NonNegative | None = None
    """Largest global gradient norm, above which gradients are scaled down; ``None``: no clipping."""

    learner_class: ClassVar[type[Learner]] = QRDQNLearner
    policies: ClassVar = policy_aliases(ValuePolicy, ValuePolicy, network=QuantileNetwork)

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.Adam, {"eps": 0.01 / self.batch_size})  # section 5

    card: ClassVar[Card] = Card(
        idea="DQN with quantiles of returns, at fixed levels",
        learns_from="replay",
        search=Search(
            tune.of_policy(tune.one_of("n_quantiles", [10, 25, 50, 100, 200])), tune.q_learning(tune.epsilon())
        ),
        title="QR-DQN",
    )
