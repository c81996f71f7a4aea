"""Batch-Constrained deep Q-learning for discrete actions (BCQ).

Fujimoto, Conti, Ghavamzadeh and Pineau 2019, "Benchmarking Batch Deep Reinforcement Learning Algorithms",
arXiv:1910.01708. Deep Q-learning restricted to actions that are likely in the data: beside the Q-values, and from the
same features, an imitator G learns the behaviour policy.

Shapes: B batch rows, A actions.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

from torch import Tensor
from torch.nn import functional as F

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.dqn import DQN, DQNLearner
from polyak.experience import Transition
from polyak.fields.offline import OfflineAlgorithm
from polyak.fields.values import CarefulTargets
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate, NonNegative, require
from polyak.learning.learner import Learner, Objective, Tunable
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.encoders import Obs
from polyak.nn.policies.constrained import UNLIKELY, ConstrainedPolicy, ConstrainedQNetwork, likely
from polyak.parts.part import MadeOf, of_policy

# -- losses ------------------------------------------------------------------------------------------------------------


def imitation_loss(logits: Tensor, actions: Tensor, weights: Tensor) -> Tensor:
    """-E[log G(a|s)], algorithm 1. logits [B, A], recorded actions [B], weights [B] -> []"""
    return (weights * F.cross_entropy(logits, actions, reduction="none")).mean()


def logit_penalty(logits: Tensor, weights: Tensor) -> Tensor:
    """E[mean_a l(a)^2] of the logits l, which keeps G from becoming deterministic (the authors' regulariser).

    logits [B, A], weights [B] -> []
    """
    return (weights * (logits**2).mean(1)).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class BCQLearner(DQNLearner):
    """Q-values, their target network, and an imitator of the data's policy."""

    policy: ConstrainedPolicy
    logit_coef: Tunable[Tensor]

    def predicted(self, batch: Transition) -> Tensor:
        """Returns Q-values and imitator logits of the online network: [B, 2, A]"""
        return self.policy.q_net.both(batch.observations)

    def q_values(self, network: ConstrainedQNetwork, observations: Obs) -> Tensor:
        """Returns Q-values of every action, including unlikely ones: [B, A]"""
        return network.both(observations)[:, 0]

    def next_actions(self, batch: Transition, next_q: Tensor) -> Tensor:
        """Returns the best action among those that the online imitator considers likely, by the target network, or by
        the online one: double Q-learning, algorithm 1. -> [B]"""
        q_net = self.policy.q_net
        values, logits = q_net.both(batch.next_observations).unbind(1)
        candidates = likely(logits, q_net.threshold, batch.extras.get("next_masks"))
        return (values if self.double else next_q).masked_fill(~candidates, UNLIKELY).argmax(1)

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns Q-learning and imitation losses. q [B, 2, A]: values and logits of every action; target [B] of those
        taken"""
        values, logits = q.unbind(1)
        imitation = imitation_loss(logits, batch.actions.flatten().long(), batch.weights)
        penalty = self.logit_coef * logit_penalty(logits, batch.weights)
        bellman = super().objective(batch, values, target)
        return bellman.plus(imitation + penalty, q_loss=bellman.loss.detach(), imitation_loss=imitation.detach())


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class BCQ(CarefulTargets, OfflineAlgorithm, DQN):
    """Batch-constrained deep Q-learning: DQN restricted to actions that are likely in the data (arXiv:1910.01708)."""

    learning_rate: LearningRate = 3e-4
    """Step size of the optimizer: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    batch_size: Count = 64
    """Transitions per gradient step."""
    threshold: Fraction = 0.3
    """Minimum probability of an allowed action, relative to the most likely one: 0 is DQN, 1 imitates."""
    logit_coef: NonNegative = 1e-2
    """Weight of a penalty on the mean square of the imitator's logits."""

    made_of: ClassVar[MadeOf] = {"network": of_policy("threshold")}
    learner_class: ClassVar[type[Learner]] = BCQLearner
    policies: ClassVar = policy_aliases(ConstrainedPolicy, ConstrainedPolicy)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        why = "its policy is a softmax of all actions' values, likely or not. Leave it out."
        require(not self.munchausen, "munchausen", self.munchausen, why)

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        if name == "threshold":
            cast(ConstrainedPolicy, self.policy).constrain(self.threshold)

    card: ClassVar[Card] = Card(
        idea="DQN among the actions that the data might have chosen",
        learns_from="a dataset, then replay",
        search=Search(tune.from_data(), tune.uniform("threshold", 0.0, 0.7), tune.soft_target(high=0.02)),
    )
