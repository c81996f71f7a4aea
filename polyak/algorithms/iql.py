"""Implicit Q-Learning (IQL).

Kostrikov, Nair and Levine 2021, "Offline Reinforcement Learning with Implicit Q-Learning", arXiv:2110.06169. Equation
numbers refer to it. No network evaluates actions outside the data: the value of a state is an upper expectile of its
recorded actions' Q-values, and the actor is fitted by advantage-weighted regression.

Shapes: B batch rows, A action dimensions, K critics. Actions are in units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.experience import Transition
from polyak.fields.actor_critic import CriticFields
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.declaration import Fraction, LearningRate, NonNegative, Positive, Scheduled
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update, set_rate
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.bounded import BoundedGaussianActor
from polyak.nn.policies.valued import ValuedPolicy
from polyak.ops.updates import polyak_update
from polyak.schedules import CosineSchedule

# -- losses ------------------------------------------------------------------------------------------------------------


def expectile_loss(error: Tensor, expectile: Tensor, weights: Tensor) -> Tensor:
    """E[|tau - 1(u < 0)| u^2], u = Q(s, a) - V(s), eq. 5. u [B], tau [], weights [B] -> []"""
    return (weights * (expectile - (error < 0).float()).abs() * error**2).mean()


def critic_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """sum_k E[(r + gamma V(s') - Q_k(s, a))^2], eq. 6. q [K, B], target [B], weights [B] -> []"""
    return (weights * (q - target) ** 2).mean(1).sum()


def actor_loss(log_prob: Tensor, advantages: Tensor, beta: Tensor, largest: Tensor, weights: Tensor) -> Tensor:
    """-E[min(exp(beta A), largest) log pi(a|s)], eq. 7, with weights detached from the networks.

    log_prob [B] of recorded actions, advantages A [B], beta [], largest [], weights [B] -> []
    """
    counts = (beta * advantages.detach()).exp().clamp(max=largest)
    return -(weights * counts * log_prob).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class IQLLearner(Learner):
    """A state-value function, an actor, and critics with target networks."""

    policy: ValuedPolicy
    tau: Tunable[Tensor]
    actor_learning_rate: Tunable[Tensor]
    expectile: Tunable[Tensor]
    beta: Tunable[Tensor]
    max_weight: Tunable[Tensor]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        critic = self.policy.critic
        self.add_optimizer("value", self.policy.value, recipe.make_optimizer, recipe.lr)
        self.add_optimizer("actor", self.policy.actor, recipe.make_optimizer, recipe.lr)
        self.add_optimizer("critic", critic.own_parameters(), recipe.make_optimizer, recipe.lr, owner=critic)
        self.set()

    def set(self, **values: float) -> None:
        super().set(**values)
        set_rate(self.optimizers["actor"], self.tunables["actor_learning_rate"])

    def gradient_step(self, batch: Transition) -> Update:
        """Makes the steps of algorithm 1 in the order of the authors' code: actor and critics use the updated value
        function, and the actor's advantages come from the target critics, which are updated last."""
        recorded = self.recorded_values(batch)
        value = self.value_objective(batch, recorded - self.policy.value(batch.observations))
        self.minimise("value", value.loss)
        actor = self.actor_objective(batch, self.advantages(batch, recorded))
        self.minimise("actor", actor.loss)
        q = self.policy.critic.q_values(batch.observations, batch.actions)
        critic = self.critic_objective(batch, q, self.td_target(batch))
        self.minimise("critic", critic.loss)
        polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        losses = {"value_loss": value.loss, "actor_loss": actor.loss, "critic_loss": critic.loss}
        metrics = {**value.metrics, **actor.metrics, **critic.metrics}
        return Update({**{name: loss.detach() for name, loss in losses.items()}, **metrics}, critic.td_error)

    @torch.no_grad()
    def recorded_values(self, batch: Transition) -> Tensor:
        """Returns the smaller target critic's Q-value of the batch's actions. -> [B]"""
        return self.policy.critic_target.q_values(batch.observations, batch.actions).amin(0)

    @torch.no_grad()
    def advantages(self, batch: Transition, recorded: Tensor) -> Tensor:
        """Returns the advantages of the batch's actions over the state values. recorded [B] -> [B]"""
        return recorded - self.policy.value(batch.observations)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns r + gamma V(s'), eq. 6. -> [B]"""
        return batch.rewards + batch.discounts * self.policy.value(batch.next_observations)

    def value_objective(self, batch: Transition, error: Tensor) -> Objective:
        """Returns the expectile loss of the state values. error [B]"""
        return Objective(expectile_loss(error, self.expectile, batch.weights))

    def actor_objective(self, batch: Transition, advantages: Tensor) -> Objective:
        """Returns the actor's loss. advantages [B]"""
        policy = self.policy.actor.get_distribution(batch.observations)
        log_prob = policy.log_prob(batch.actions.flatten(1))
        loss = actor_loss(log_prob, advantages, self.beta, self.max_weight, batch.weights)
        return Objective(loss, {"advantage": advantages.mean()})

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. q [K, B] of the batch's actions, target [B]"""
        return Objective(critic_loss(q, target, batch.weights), td_error=(q - target).detach().abs().mean(0))


# -- hyper-parameters --------------------------------------------------------------------------------------------------

_FALLING = CosineSchedule(3e-4)


@dataclass(eq=False, repr=False)
class IQL(CriticFields, OfflineAlgorithm, OffPolicyAlgorithm):
    """Implicit Q-Learning: offline learning that never evaluates actions outside the data (arXiv:2110.06169).

    The actor is a Gaussian around tanh of its network, with state-independent standard deviations, like the authors'.
    For locomotion they scale rewards: ``reward_scaling="returns"``.
    """

    _: KW_ONLY
    actor_learning_rate: Scheduled[LearningRate] = _FALLING
    """Learning rate of the actor, which falls along a cosine to 0 at the end of ``learn``; ``learning_rate`` is that of
    the critics."""
    expectile: Fraction = 0.7
    """Expectile of the recorded actions' Q-values that a state's value is fitted to: 0.5 is the mean, 1 the maximum."""
    beta: NonNegative = 3.0
    """Inverse temperature of the actor's weights: a larger one prefers better actions more. 0 clones."""
    max_weight: Positive = 100.0
    """Upper bound of exp(beta * advantage)."""

    learner_class: ClassVar[type[Learner]] = IQLLearner
    policies: ClassVar = policy_aliases(ValuedPolicy, actor=BoundedGaussianActor, net_arch=[256, 256])
    value = Held("policy.value")
    """The state-value network."""

    card: ClassVar[Card] = Card(
        idea="values of recorded actions alone; imitate the better ones",
        learns_from="a dataset, then replay",
        search=Search(tune.from_data(), tune.uniform("expectile", 0.5, 0.95), tune.log_uniform("beta", 0.3, 30.0)),
    )
