"""Implicit Quantile Networks (IQN).

Dabney, Ostrovski, Silver and Munos 2018, "Implicit Quantile Networks for Distributional Reinforcement Learning",
arXiv:1806.06923. Equation numbers refer to it.

Shapes: B batch rows, A actions, N and M quantile levels.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.dqn import DQN, DQNLearner, taken
from polyak.experience import Transition
from polyak.hyperparameters.declaration import Count
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.value import ImplicitQuantileNetwork, ValuePolicy
from polyak.ops.distributional import quantile_huber_loss

# -- one gradient step -------------------------------------------------------------------------------------------------


class IQNLearner(DQNLearner):
    """Quantiles of returns at sampled levels."""

    n_levels: Tunable[int]
    n_target_levels: Tunable[int]

    def gradient_step(self, batch: Transition) -> Update:
        """Makes a quantile regression step of the actions taken towards target samples at separate levels: eq. 3."""
        with self.policy.drawing():
            target = self.td_target(batch)
            levels = torch.rand(len(target), self.n_levels, device=target.device)
            quantiles = self.policy.q_net.quantiles(batch.observations, levels)
            objective = self.quantile_objective(batch, quantiles, levels, target)
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update({"loss": objective.loss.detach(), **objective.metrics}, objective.td_error)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns samples of the targets, eq. 2; the next action is chosen by quantiles at separate levels. -> [B, M]"""
        network = self.policy.q_net_target
        levels = torch.rand(len(batch.rewards), self.n_target_levels, device=batch.rewards.device)
        returns = network.quantiles(batch.next_observations, levels)
        returns = self.backup(batch, network(batch.next_observations), returns)
        return self.rewards(batch)[:, None] + batch.discounts[:, None] * returns

    def quantile_objective(self, batch: Transition, quantiles: Tensor, levels: Tensor, target: Tensor) -> Objective:
        """Returns the loss of eq. 3. Quantiles [B, N, A] of every action at levels [B, N], target [B, M] of those taken"""
        losses = quantile_huber_loss(taken(quantiles, batch.actions.long()), target, levels)
        return Objective((batch.weights * losses).mean(), td_error=losses.detach())


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class IQN(DQN):
    """Implicit Quantile Networks: learns quantiles of returns at any level, and acts by their mean (arXiv:1806.06923)."""

    _: KW_ONLY
    n_levels: Count = 64
    """Quantile levels sampled for each prediction, N."""
    n_target_levels: Count = 64
    """Quantile levels sampled for each target, N'."""

    learner_class: ClassVar[type[Learner]] = IQNLearner
    policies: ClassVar = policy_aliases(ValuePolicy, ValuePolicy, network=ImplicitQuantileNetwork)

    card: ClassVar[Card] = Card(
        idea="DQN with quantiles of returns, at any level",
        learns_from="replay",
        search=Search(
            tune.q_learning(tune.epsilon()),
            tune.power_of_two("n_levels", 8, 64),
            tune.power_of_two("n_target_levels", 8, 64),
        ),
    )
