"""Soft Actor-Critic in its first form, with a state-value network (SACV).

Haarnoja, Zhou, Abbeel and Levine 2018, "Soft Actor-Critic: Off-Policy Maximum Entropy Deep Reinforcement Learning with
a Stochastic Actor", arXiv:1801.01290. Equation numbers refer to it. The critics' targets come from a target state-value
network; the second form, :mod:`polyak.algorithms.sac`, has target critics instead.

The paper scales rewards and fixes the temperature at 1. Here rewards are not scaled and the temperature alpha is 1 /
scale: the policy is the same, and values are smaller by that factor.

Shapes: B batch rows, A action dimensions, K critics.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.algorithms.sac import SAC, GaussianTemperature, SACLearner, soft_value
from polyak.experience import Transition
from polyak.hyperparameters.declaration import NonNegative
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, Objective, Update
from polyak.learning.part_rates import PartRates
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.valued import CriticWithoutTarget, LaggingValuePolicy
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf

# -- losses ------------------------------------------------------------------------------------------------------------


def value_loss(values: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """J_V = E[1/2 (V(s) - target)^2], eq. 5. values [B], target [B], weights [B] -> []"""
    return 0.5 * (weights * (values - target) ** 2).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class SACVLearner(SACLearner):
    """Actor, critics, and a state-value function with a target network."""

    policy: LaggingValuePolicy
    optimized = ("value",)

    def gradient_step(self, batch: Transition, update_target: bool) -> Update:
        """Makes the steps of algorithm 1: state values, critics, actor, each by the others' latest update; then the
        target."""
        alpha = self.temperature()
        actions, log_prob = self.policy.actor.action_log_prob(batch.observations)
        target = self.soft_values(batch, actions, log_prob, alpha)
        value = self.value_objective(batch, self.policy.value(batch.observations), target)
        self.minimise("value", value.loss)
        update = self.improve_critics(batch, alpha)
        metrics = self.improve_actor(batch, actions, log_prob, alpha)
        if update_target:
            polyak_update(self.policy.value, self.policy.value_target, self.tau)
        metrics = {**update.metrics, "value_loss": value.loss.detach(), **value.metrics, **metrics}
        return update._replace(metrics=metrics)

    @torch.no_grad()
    def soft_values(self, batch: Transition, actions: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """Returns the targets of V: one sample of eq. 3, by the smaller critic. The actor's actions [B, A], log_prob
        [B] -> [B]"""
        return soft_value(self.q_of_policy(batch, actions), log_prob, alpha)

    @torch.no_grad()
    def td_target(self, batch: Transition, alpha: Tensor) -> Tensor:
        """Returns the target Q-values r + gamma V_target(s'), eq. 8. -> [B]"""
        return batch.rewards + batch.discounts * self.policy.value_target(batch.next_observations)

    def value_objective(self, batch: Transition, values: Tensor, target: Tensor) -> Objective:
        """Returns the value loss. values [B], target [B]"""
        return Objective(value_loss(values, target, batch.weights))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class TemperatureBesideValues(GaussianTemperature):
    """The temperature beside a state-value network, which has its own learning rate."""

    rated: ClassVar = ("actor", "critic", "value", "ent_coef")


@dataclass(eq=False, repr=False)
class SACV(SAC):
    """Soft Actor-Critic in its first form: a target state-value network, a fixed temperature (arXiv:1801.01290).

    The losses of actor and critics are in :mod:`polyak.algorithms.sac`.
    """

    _: KW_ONLY
    ent_coef: NonNegative | str = 0.2
    """Entropy temperature alpha, 1 over the paper's reward scale: a number fixes it, as in the paper; ``"auto"`` learns
    it from 1, ``"auto_0.1"`` learns it from 0.1."""
    learning_rates: PartRates | None = None
    """Learning rates of single parts that override ``learning_rate``: ``"actor"``, ``"critic"``, ``"value"``,
    ``"ent_coef"``."""

    made_of: ClassVar[MadeOf] = {"temperature": TemperatureBesideValues}
    learner_class: ClassVar[type[Learner]] = SACVLearner
    policies: ClassVar = policy_aliases(
        LaggingValuePolicy, actor="squashed_gaussian", critic=CriticWithoutTarget, net_arch=[256, 256]
    )
    value = Held("policy.value")
    """The state-value network."""
    value_target = Held("policy.value_target")
    """The target state-value network."""

    card: ClassVar[Card] = Card(
        idea="SAC with a state-value network and its target, at a fixed temperature",
        learns_from="replay",
        search=tune.actor_critic(tune.log_uniform("ent_coef", 1e-3, 1.0)),
    )
