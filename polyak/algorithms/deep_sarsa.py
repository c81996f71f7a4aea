"""SARSA, Expected SARSA and their n-step and lambda versions, with a neural network.

Sutton and Barto 2018, "Reinforcement Learning: An Introduction", sections 6.4, 6.6, 7.2 and 12.7; trained on several
environments in parallel without replay as in Mnih et al. 2016, arXiv:1602.01783, section 4.

Shapes: B batch rows, N environments, A actions.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.algorithms.dqn import taken
from polyak.experience import Experience, RolloutSamples
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.fields.values import GreedyOnPolicy
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate
from polyak.learning.learner import Learner, Metrics, Objective, Tunable, Update
from polyak.learning.rollout_learner import RolloutLearner
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.value import GreedyPolicy
from polyak.parts.epsilon import EpsilonOfRollouts
from polyak.parts.part import MadeOf

# -- losses ------------------------------------------------------------------------------------------------------------


def expected_value(q: Tensor, epsilon: float) -> Tensor:
    """sum_a pi(a|s) Q(s, a) of the epsilon-greedy policy pi, the target of eq. 6.9. q [B, A] -> [B]"""
    return (1 - epsilon) * q.amax(1) + epsilon * q.mean(1)


def value_loss(q: Tensor, returns: Tensor) -> Tensor:
    """E[(G - Q(s, a))^2]. q [B], returns G [B] -> []"""
    return ((returns - q) ** 2).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class DeepSARSALearner(RolloutLearner):
    """Action values of the behaviour policy."""

    optimized = ("policy",)
    policy: GreedyPolicy
    max_grad_norm: Tunable[Tensor | None]
    exploration_rate: float = 0.0
    """Probability of a random action in the evaluated rollout."""
    expected: bool = False
    """Whether all successors are evaluated by expected values, rather than only those that no row holds."""

    # Returns of section 12.7: sums of TD errors r + gamma V(s') - Q(s, a) that decay by lambda.

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        """Returns the values of the actions taken, and 0 for the unused log-probabilities."""
        observations, actions, *_ = rows
        q = self.policy.q_net(observations)
        values = taken(q, actions.long().flatten())
        found = {"values": values, "log_probs": torch.zeros_like(values)}
        return {**found, "state_values": expected_value(q, self.exploration_rate)} if self.expected else found

    def next_values(self, successors: Experience, acting: Any) -> Tensor:
        return expected_value(self.policy.q_net(successors.observations), self.exploration_rate)

    def gradient_step(self, batch: RolloutSamples) -> Update:
        """Makes a gradient step of the values of the actions taken towards their returns."""
        objective = self.objective(batch, taken(self.policy.q_net(batch.observations), batch.actions.long().flatten()))
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update({"loss": objective.loss.detach(), **objective.metrics})

    def objective(self, batch: RolloutSamples, q: Tensor) -> Objective:
        """Returns the value loss. q [B] of the actions taken"""
        return Objective(value_loss(q, batch.returns))


def pass_exploration(model: Any) -> None:
    """Pass the exploration rate to the learner, before it evaluates a rollout."""
    model.learner.exploration_rate, model.learner.expected = model.exploration_rate, model.expected


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class PassedOn(EpsilonOfRollouts):
    """Epsilon that is passed to the learner, too, which evaluates the behaviour policy."""

    completing: ClassVar = (pass_exploration,)


@dataclass(eq=False, repr=False)
class DeepSARSA(GreedyOnPolicy, OnPolicyAlgorithm):
    """SARSA with a network: learns the values of the epsilon-greedy behaviour policy from fresh rollouts (Sutton and
    Barto 2018)."""

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY
    n_steps: Count = 8
    """Steps per environment in one rollout."""
    gae_lambda: Fraction = 0.9
    """Trace decay lambda, in [0, 1]: 0 is one-step SARSA, 1 sums all rewards of the rollout (n-step SARSA)."""
    expected: bool = False
    """Expected SARSA: bootstrap from the expected value of the next state under the policy, rather than from the value
    of the action taken there. After the last step of a rollout it always does."""

    made_of: ClassVar[MadeOf] = {"epsilon": PassedOn}
    learner_class: ClassVar[type[Learner]] = DeepSARSALearner
    policies: ClassVar = policy_aliases(GreedyPolicy)
    action_spaces: ClassVar = (spaces.Discrete,)
    supports_masks: ClassVar[bool] = False

    card: ClassVar[Card] = Card(
        idea="values of the policy that acts: SARSA, Expected SARSA, n-step, lambda",
        learns_from="its own rollouts",
        search=tune.short_rollouts(4, tune.choice("expected"), tune.epsilon()),
    )
