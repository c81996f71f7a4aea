"""PQN: Q-learning from many parallel environments, without replay and without a target network.

Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", arXiv:2407.04811. Fresh experience of many
environments and layer normalisation replace the replay buffer and the target network. The gradient step is DeepSARSA's:
values of the actions taken move towards returns. It differs in the returns, and in the number of passes over them.

Shapes: B minibatch rows, N environments, A actions, M = A choices of a mask.
"""

from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Any, ClassVar, cast

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.algorithms.deep_sarsa import DeepSARSALearner
from polyak.algorithms.dqn import allowed
from polyak.experience import Experience
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.fields.values import GreedyOnPolicy
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate
from polyak.learning.learner import Learner, Metrics, OptimizerRecipe
from polyak.loops.updates import Gained, Minibatches, measured
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.value import GreedyPolicy
from polyak.parts.epsilon import EpsilonOfEach
from polyak.parts.part import MadeOf
from polyak.parts.rollouts import Rollouts

# -- targets -----------------------------------------------------------------------------------------------------------


def greedy_value(q: Tensor, masks: Tensor | None) -> Tensor:
    """max_a Q(s, a) over allowed actions. q [B, A], masks [B, M] bool or None: everything -> [B]"""
    return allowed(q, masks).amax(1)


# -- one gradient step -------------------------------------------------------------------------------------------------


class PQNLearner(DeepSARSALearner):
    """DeepSARSA's gradient step with greedy state values.

    G_t = r + gamma (lambda G_(t+1) + (1 - lambda) max_a Q(s', a)), as in algorithm 1: generalised advantage estimation
    with max_a Q(s, a) as the state value. The network does not change while a rollout is collected.
    """

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        """Returns greedy values, and 0 for the unused log-probabilities."""
        observations, _, *more = rows
        values = greedy_value(self.policy.q_net(observations), more[0].get("masks") if more else None)
        return {"values": values, "log_probs": torch.zeros_like(values)}

    def next_values(self, successors: Experience, acting: Any) -> Tensor:
        return greedy_value(self.policy.q_net(successors.observations), successors.columns.get("masks"))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class Passes(Rollouts):
    """Makes ``n_epochs`` shuffled passes over each rollout."""

    def optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.RAdam)

    def updates_per_rollout(self, rows: int) -> int:
        return cast(int, self.model.n_epochs * -(-rows // self.model.batch_size))

    def lesson(self, minibatches: Minibatches) -> Gained:
        model = self.model
        passes = (model.learner.learn_all(minibatches(model.batch_size)) for _ in range(model.n_epochs))
        return Gained(measured(chain.from_iterable(passes)), model.n_epochs)


@dataclass(eq=False, repr=False)
class PQN(GreedyOnPolicy, OnPolicyAlgorithm):
    """Parallelised Q-learning: lambda-returns of short rollouts, layer normalisation, no replay (arXiv:2407.04811)."""

    learning_rate: LearningRate = 2.5e-4
    _: KW_ONLY
    n_steps: Count = 32
    """Steps per environment in one rollout."""
    gae_lambda: Fraction = 0.65
    """Trace decay lambda of the returns, in [0, 1]: 0 bootstraps after one step, 1 sums all rewards of the rollout."""
    batch_size: Count = 32
    """Rows of the rollout per minibatch."""
    n_epochs: Count = 2
    """Passes over each rollout."""

    supports_masks: ClassVar[bool] = True
    made_of: ClassVar[MadeOf] = {"rollouts": Passes, "epsilon": EpsilonOfEach}
    learner_class: ClassVar[type[Learner]] = PQNLearner
    policies: ClassVar = policy_aliases(GreedyPolicy, layer_norm=True)
    action_spaces: ClassVar = (spaces.Discrete,)

    card: ClassVar[Card] = Card(
        idea="Q-learning of many environments, with layer normalisation in place of replay and targets",
        learns_from="its own rollouts",
        search=tune.passes(8, tune.epsilon(), tune.clipped_gradients()),
    )
