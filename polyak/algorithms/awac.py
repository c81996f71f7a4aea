"""Advantage Weighted Actor-Critic (AWAC).

Nair, Gupta, Dalal and Levine 2020, "AWAC: Accelerating Online Reinforcement Learning with Offline Datasets",
arXiv:2006.09359. Section numbers refer to it. The actor is fitted to recorded actions, weighted by their advantages:
its update needs no critic values of its own actions except as a baseline. The same rule applies to the dataset and to
later online experience.

Shapes: B batch rows, A action dimensions, K critics, M actions. Actions are in units of the action space scaled to
[-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.experience import Transition
from polyak.fields.actor_critic import CriticFields, Spaced
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.declaration import Count, Positive
from polyak.learning.learner import Learner, LearnerRecipe, Metrics, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.gaussian import Gaussian
from polyak.nn.policies.bounded import BoundedGaussianActor
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.ops.updates import polyak_update

# -- losses ------------------------------------------------------------------------------------------------------------


def critic_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """sum_k E[(Q_k(s, a) - y)^2], section 4.1. q [K, B], target y [B], weights [B] -> []"""
    return (weights * (q - target) ** 2).mean(1).sum()


def exponential_weights(advantages: Tensor, temperature: Tensor, largest: Tensor) -> Tensor:
    """min(exp(A / lambda), largest), section 4.2. advantages [B], lambda [], largest [] -> [B]"""
    return (advantages / temperature).exp().clamp(max=largest)


def normalised_weights(advantages: Tensor, temperature: Tensor, largest: Tensor) -> Tensor:
    """B softmax(A / lambda) over the batch, at most ``largest``: the weights of section 4.2 divided by their mean.

    advantages [B], lambda [], largest [] -> [B]
    """
    return (len(advantages) * (advantages / temperature).softmax(0)).clamp(max=largest)


def actor_loss(log_prob: Tensor, advantage_weights: Tensor, weights: Tensor) -> Tensor:
    """-E[w(A) log pi(a|s)], section 4.2. log_prob [B] of recorded actions, their weights w [B] and [B] of rows -> []"""
    return -(weights * advantage_weights * log_prob).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class AWACLearner(Learner):
    """A Gaussian actor, and critics with target networks."""

    policy: ContinuousPolicy
    tau: Tunable[Tensor]
    target_update_interval: Tunable[int]
    temperature: Tunable[Tensor]
    normalize_weights: Tunable[bool]
    max_weight: Tunable[Tensor]
    n_action_samples: Tunable[int]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        critic = self.policy.critic
        self.add_optimizer("actor", self.policy.actor, recipe.make_optimizer, recipe.lr)
        self.add_optimizer("critic", critic.own_parameters(), recipe.make_optimizer, recipe.lr, owner=critic)

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of critics and actor, then updates the targets."""
        self.steps += 1
        update: Update = self.run(self.gradient_step, batch, self.steps % self.target_update_interval == 0)
        return update

    def gradient_step(self, batch: Transition, update_target: bool) -> Update:
        """Makes the gradient steps of algorithm 1."""
        critic = self.critic_objective(batch, self.estimates(batch), self.td_target(batch))
        self.minimise("critic", critic.loss)
        metrics = self.improve_actor(batch)
        if update_target:
            polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        return Update({"critic_loss": critic.loss.detach(), **critic.metrics, **metrics}, critic.td_error)

    def improve_actor(self, batch: Transition) -> Metrics:
        """Fit the actor to the batch's actions, weighted by advantages under the updated critics."""
        policy = self.policy.actor.get_distribution(batch.observations)
        advantages = self.advantages(batch, policy)
        actor = self.actor_objective(batch, policy.log_prob(batch.actions.flatten(1)), self.weigh(advantages))
        self.minimise("actor", actor.loss)
        return {"actor_loss": actor.loss.detach(), "advantage": advantages.mean(), **actor.metrics}

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns y = r + gamma min_k Q_target(s', a') with a' of the actor, section 4.1. -> [B]"""
        next_actions = self.policy.actor(batch.next_observations)
        next_q = self.policy.critic_target.q_values(batch.next_observations, next_actions)
        return batch.rewards + batch.discounts * next_q.amin(0)

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' Q-values of the batch's actions. -> [K, B]"""
        return self.policy.critic.q_values(batch.observations, batch.actions)

    @torch.no_grad()
    def advantages(self, batch: Transition, policy: Gaussian) -> Tensor:
        """Returns A(s, a) = Q(s, a) - V(s), where V is the mean of Q over the policy's actions, section 4.2. -> [B]"""
        own = policy.sample_many(self.n_action_samples).clamp(-1, 1)
        actions = torch.cat([batch.actions.flatten(1).unsqueeze(1), own], 1)
        q = self.policy.critic.q_values_of_many(batch.observations, actions).amin(0)
        return q[:, 0] - q[:, 1:].mean(1)

    def weigh(self, advantages: Tensor) -> Tensor:
        """Returns the weights of rows with advantages [B]. -> [B]"""
        weigh = normalised_weights if self.normalize_weights else exponential_weights
        return weigh(advantages, self.temperature, self.max_weight)

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. q [K, B] of the batch's actions, target [B]"""
        return Objective(critic_loss(q, target, batch.weights), td_error=(q - target).detach().abs().mean(0))

    def actor_objective(self, batch: Transition, log_prob: Tensor, advantage_weights: Tensor) -> Objective:
        """Returns the actor's loss. log_prob [B] of the batch's actions, and their weights [B]"""
        return Objective(actor_loss(log_prob, advantage_weights, batch.weights))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class AWAC(CriticFields, Spaced, OfflineAlgorithm, OffPolicyAlgorithm):
    """Advantage Weighted Actor-Critic: an actor fitted to recorded actions, weighted by advantages (arXiv:2006.09359).

    The actor is a Gaussian around tanh of its network, with samples clipped to the bounds: unlike that of a Gaussian
    squashed by tanh, its density is finite and smooth at the bounds, where recorded actions often lie.
    """

    _: KW_ONLY
    temperature: Positive = 1.0
    """Divisor lambda of advantages: a small one weights the best actions only; a large one clones. It is in units of
    returns after ``reward_scaling``."""
    normalize_weights: bool = True
    """Divide the weights exp(advantage / temperature) by their mean over the minibatch, as in the authors' code, so
    that only differences of advantages count; ``False`` does not."""
    max_weight: Positive = 100.0
    """Largest weight."""
    n_action_samples: Count = 1
    """Actions of the policy that the baseline V averages Q over."""

    learner_class: ClassVar[type[Learner]] = AWACLearner
    policies: ClassVar = policy_aliases(ContinuousPolicy, actor=BoundedGaussianActor, net_arch=[256, 256])

    card: ClassVar[Card] = Card(
        idea="an actor fitted to recorded actions, the better ones more so",
        learns_from="a dataset, then replay",
        search=Search(tune.from_data(), tune.log_uniform("temperature", 0.03, 10.0)),
    )
