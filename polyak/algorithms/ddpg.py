"""Deep Deterministic Policy Gradient (DDPG).

Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", arXiv:1509.02971. Equation numbers refer
to it.

Shapes: B batch rows, A action dimensions. Actions are in units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.experience import Transition
from polyak.fields.actor_critic import CriticFields, Noisy
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.declaration import LearningRate
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.ops.updates import polyak_update

# -- losses ------------------------------------------------------------------------------------------------------------


def critic_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """L = E[(Q(s, a) - y)^2], eq. 4. q [B], target y [B], weights [B] -> []"""
    return (weights * (q - target) ** 2).mean()


def actor_loss(q: Tensor) -> Tensor:
    """-E[Q(s, mu(s))]; its gradient is minus eq. 6: E[grad_a Q(s, a) at a = mu(s), times grad mu(s)]. q [B] -> []"""
    return -q.mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class DDPGLearner(Learner):
    """Actor and critic, each with a target network."""

    optimized = ("actor", "critic")
    policy: ContinuousPolicy
    tau: Tunable[Tensor]

    def gradient_step(self, batch: Transition) -> Update:
        """Makes the gradient steps of critic and actor, algorithm 1, then updates both targets."""
        policy = self.policy
        target = self.td_target(batch)
        q = policy.critic.q_values(batch.observations, batch.actions)[0]
        critic = self.critic_objective(batch, q, target)
        self.minimise("critic", critic.loss)

        actions = policy.actor(batch.observations)
        q_now = policy.critic.q1_forward(batch.observations, actions).flatten()
        actor = self.actor_objective(batch, actions, q_now)
        self.minimise("actor", actor.loss)
        polyak_update(policy.critic, policy.critic_target, self.tau)
        polyak_update(policy.actor, policy.actor_target, self.tau)
        metrics = {"actor_loss": actor.loss.detach(), "critic_loss": critic.loss.detach()}
        return Update({**metrics, **critic.metrics, **actor.metrics}, critic.td_error)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns the target Q-values y of eq. 5, by the target networks. -> [B]"""
        next_actions = self.policy.actor_target(batch.next_observations)
        next_q = self.policy.critic_target.q_values(batch.next_observations, next_actions)[0]
        return batch.rewards + batch.discounts * next_q

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critic's loss. q [B] of the batch's actions, target [B]"""
        return Objective(critic_loss(q, target, batch.weights), td_error=(q - target).detach().abs())

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        """Returns the actor's loss. Its own actions [B, A] and their q [B]"""
        return Objective(actor_loss(q))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DDPG(CriticFields, Noisy, OffPolicyAlgorithm):
    """Deep Deterministic Policy Gradient: a deterministic actor and one critic (arXiv:1509.02971)."""

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY

    learner_class: ClassVar[type[Learner]] = DDPGLearner
    policies: ClassVar = policy_aliases(ContinuousPolicy, ContinuousPolicy, actor="deterministic")
    actor_target = Held("policy.actor_target")
    """The target network of the actor."""

    def _policy_options(self) -> dict[str, Any]:
        return {"n_critics": 1, **super()._policy_options()}

    card: ClassVar[Card] = Card(
        idea="one critic, one deterministic actor", learns_from="replay", search=tune.actor_critic(tune.action_noise())
    )
