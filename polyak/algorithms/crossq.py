"""CrossQ: soft actor-critic with batch normalisation and without target networks.

Bhatt et al. 2024, "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
Simplicity", arXiv:1902.05605. Its other losses are in :mod:`polyak.algorithms.sac`.

Shapes: B batch rows, A action dimensions, K critics. Actions are in units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.sac import GaussianTemperature, SoftActorCriticLearner, soft_value
from polyak.experience import Transition
from polyak.fields.actor_critic import GaussianEntropy
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.declaration import Count, LearningRate, require
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, OptimizerRecipe, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.batch_renorm import running_statistics
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.nn.policies.crossq import CrossQActor, CrossQCritic
from polyak.parts.part import MadeOf

# -- losses ------------------------------------------------------------------------------------------------------------


def bellman_sides(
    q: Tensor, rewards: Tensor, discounts: Tensor, next_log_prob: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    """Q(s, a), and y = r + gamma V(s') by the same critics without gradient: design choice 1, no target networks.

    q [K, 2B] of (s, a) and then of (s', a'); rewards, discounts and next_log_prob [B] -> [K, B] and [B]
    """
    now, then = q.chunk(2, dim=1)
    return now, rewards + discounts * soft_value(then.detach(), next_log_prob, alpha)


# -- one gradient step -------------------------------------------------------------------------------------------------


class CrossQLearner(SoftActorCriticLearner):
    """Actor and critics with batch normalisation, and the temperature.

    Critics normalise by the statistics of their batch in their own gradient step, the actor in its own; everywhere else
    layers use the running statistics, which are not updated there.
    """

    policy_delay: Tunable[int]

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of the critics; every ``policy_delay`` steps also of the actor and the temperature."""
        self.begin()
        return self.with_actor(self.run(self.critic_step, batch), batch)

    def critic_step(self, batch: Transition) -> Update:
        """Makes the critics' step, with both sides of the Bellman equation in one forward pass, design choice 2.

        Actions of the policy and of the buffer are distributed differently: (s, a) and (s', a') are normalised
        together, by the statistics of their mixture.
        """
        policy, alpha = self.policy, self.temperature()
        with torch.no_grad(), running_statistics(policy.actor):
            next_actions, next_log_prob = policy.actor.action_log_prob(batch.next_observations)
        observations = joined(batch.observations, batch.next_observations)
        actions = torch.cat([batch.actions.flatten(1), next_actions.flatten(1)])
        q = policy.critic.q_values(observations, actions)
        q, target = bellman_sides(q, batch.rewards, batch.discounts, next_log_prob, alpha)
        critic = self.critic_objective(batch, q, target)
        self.minimise("critic", critic.loss)
        metrics = {"critic_loss": critic.loss.detach(), "ent_coef": alpha.mean(), **critic.metrics}
        return Update(metrics, critic.td_error)

    def q_of_policy(self, batch: Transition, actions: Tensor) -> Tensor:
        with running_statistics(self.policy.critic):
            return super().q_of_policy(batch, actions)


def joined(first: Any, second: Any) -> Any:
    """Concatenates the rows of two batches of observations, tensors or dicts of them."""
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    return {key: torch.cat([rows, second[key]]) for key, rows in first.items()}


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class CrossQ(GaussianEntropy, OffPolicyAlgorithm):
    """CrossQ: soft actor-critic with batch-normalised critics and no target networks (arXiv:1902.05605)."""

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY
    policy_delay: Count = 3
    """Gradient steps of the critics per step of the actor and the temperature."""

    made_of: ClassVar[MadeOf] = {"temperature": GaussianTemperature}
    learner_class: ClassVar[type[Learner]] = CrossQLearner
    policies: ClassVar = policy_aliases(
        ContinuousPolicy, actor=CrossQActor, critic=CrossQCritic, net_arch={"pi": [256, 256], "qf": [1024, 1024]}
    )
    actor = Held("policy.actor")
    """The actor network."""
    critic = Held("policy.critic")
    """The critic networks."""

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        require(self.batch_size > 1, "batch_size", self.batch_size, "a batch of one row cannot be normalised.")

    def _default_optimizer(self) -> OptimizerRecipe:
        """Returns an optimizer with less momentum than usual, also if the user chooses AdamW by its class alone."""
        asked = (self.policy_kwargs or {}).get("optimizer_class")
        kind = asked if asked is torch.optim.AdamW else torch.optim.Adam
        return OptimizerRecipe(kind, {"betas": (0.5, 0.999)})

    card: ClassVar[Card] = Card(
        idea="SAC with batch-normalised, wider critics and no targets",
        learns_from="replay",
        search=Search(
            tune.rate(), tune.discount(), tune.replay(), tune.updates(most=64), tune.whole("policy_delay", 1, 4)
        ),
    )
