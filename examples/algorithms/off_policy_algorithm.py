"""Advantage learning: action values whose target takes away from every action that is not the best.

Bellemare et al. 2016, "Increasing the Action Gap: New Operators for Reinforcement Learning", arXiv:1512.04860.

Shapes: B rows of a minibatch, A actions.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from polyak import custom
from polyak.custom import Card, Fraction, Search, Tunable, Update, tune
from polyak.experience import Transition
from polyak.nn import ValuePolicy


def advantage_target(
    rewards: Tensor, discounts: Tensor, next_q: Tensor, q: Tensor, actions: Tensor, gap: Tensor
) -> Tensor:
    """r + gamma max_b Q(s', b) - alpha (max_b Q(s, b) - Q(s, a)). [B], [B], [B, A], [B, A], actions [B, 1] -> [B]"""
    lag = q.amax(1) - q.gather(1, actions).flatten()
    return rewards + discounts * next_q.amax(1) - gap * lag


class AdvantageLearner(custom.Learner):
    """Action values, and a copy that follows them."""

    optimized = ("policy",)
    policy: ValuePolicy
    gap: Tunable[Tensor]
    tau: Tunable[Tensor]

    def gradient_step(self, batch: Transition) -> Update:
        """Regress the values of the actions taken on their targets; then the copy follows."""
        network, copy, actions = self.policy.q_net, self.policy.q_net_target, batch.actions.long()
        with torch.no_grad():
            now, then = copy(batch.observations), copy(batch.next_observations)
            target = advantage_target(batch.rewards, batch.discounts, then, now, actions, self.gap)
        error = network(batch.observations).gather(1, actions).flatten() - target
        loss = (batch.weights * error.square()).mean()
        self.minimise("policy", loss)
        custom.polyak_update(network, copy, self.tau)
        return Update({"loss": loss.detach()}, error.detach().abs())


@dataclass(eq=False, repr=False)
class AdvantageLearning(custom.OffPolicyAlgorithm):
    """Action values with a larger gap between the best action and the others (arXiv:1512.04860)."""

    _: KW_ONLY
    gap: Fraction = 0.9
    """alpha: how much of its distance from the best an action loses, in [0, 1)."""
    tau: Fraction = 0.005
    """Rate at which the target network follows, in [0, 1]; 1 copies."""
    exploration_fraction: Fraction = 0.1
    """Fraction of training over which the exploration rate falls."""
    exploration_initial_eps: Fraction = 1.0
    """Probability of a random action at the start."""
    exploration_final_eps: Fraction = 0.05
    """Probability of a random action once it has fallen."""

    made_of: ClassVar = {"epsilon": custom.EpsilonOfSteps}
    predict = custom.Through("epsilon", custom.EpsilonOfSteps.predict)
    learner_class: ClassVar = AdvantageLearner
    policies: ClassVar = custom.policy_aliases(ValuePolicy)
    action_spaces: ClassVar = (spaces.Discrete,)
    card: ClassVar = Card(
        idea="action values whose target takes away from every action that is not the best",
        learns_from="replay",
        search=Search(tune.rate(), tune.discount(), tune.replay(), tune.uniform("gap", 0.0, 0.95)),
    )


custom.register(AdvantageLearning)
