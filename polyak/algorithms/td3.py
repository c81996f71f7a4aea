"""Twin Delayed Deep Deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger 2018, "Addressing Function Approximation Error in Actor-Critic Methods", arXiv:1802.09477.
Equation numbers refer to it.

Shapes: B batch rows, A action dimensions, K critics. Actions are in units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.experience import Transition
from polyak.fields.actor_critic import Smoothed
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.declaration import LearningRate
from polyak.learning.learner import Learner, Metrics, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.ops.updates import polyak_update

# -- losses ------------------------------------------------------------------------------------------------------------


def smoothed(actions: Tensor, sigma: Tensor | None, clip: Tensor) -> Tensor:
    """Target policy smoothing: a + clip(N(0, sigma), -c, c), clipped to [-1, 1], section 5.3. [B, A] -> [B, A]

    Without sigma the noise is uniform in [-c, c].
    """
    if sigma is None:
        noise = (2 * torch.rand_like(actions) - 1) * clip
    else:
        noise = (torch.randn_like(actions) * sigma).clamp(-clip, clip)
    return (actions + noise).clamp(-1, 1)


def critic_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """sum_k E[(Q_k(s, a) - y)^2], algorithm 1. q [K, B], target y [B], weights [B] -> []"""
    return (weights * (q - target) ** 2).mean(1).sum()


def actor_loss(q: Tensor) -> Tensor:
    """-E[Q_1(s, pi(s))], whose gradient is the deterministic policy gradient, eq. 2. First critic's q [B] -> []"""
    return -q.mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class TD3Learner(Learner):
    """Actor and twin critics, each with a target network."""

    optimized = ("actor", "critic")
    policy: ContinuousPolicy
    tau: Tunable[Tensor]
    target_policy_noise: Tunable[Tensor | None]
    target_noise_clip: Tunable[Tensor]
    policy_delay: Tunable[int]

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of the critics; every ``policy_delay`` steps also of the actor and of all targets."""
        self.steps += 1
        update: Update = self.run(self.critic_step, batch)
        if self.steps % self.policy_delay == 0:
            update = update._replace(metrics={**update.metrics, **self.run(self.delayed_step, batch)})
        return update

    def critic_step(self, batch: Transition) -> Update:
        """Makes a step of clipped double Q-learning, algorithm 1."""
        target = self.td_target(batch)
        critic = self.critic_objective(batch, self.estimates(batch), target)
        self.minimise("critic", critic.loss)
        return Update({"critic_loss": critic.loss.detach(), **critic.metrics}, critic.td_error)

    def delayed_step(self, batch: Transition) -> Metrics:
        """Makes a deterministic policy gradient step through the first critic, then updates the targets."""
        actions = self.policy.actor(batch.observations)
        actor = self.actor_objective(batch, actions, self.q_of_policy(batch, actions))
        self.minimise("actor", actor.loss)
        polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        polyak_update(self.policy.actor, self.policy.actor_target, self.tau)
        return {"actor_loss": actor.loss.detach(), **actor.metrics}

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns the smaller target critic's value of smoothed target actions, eq. 10 and section 5.3. -> [B]"""
        next_actions = self.policy.actor_target(batch.next_observations)
        next_actions = smoothed(next_actions, self.target_policy_noise, self.target_noise_clip)
        next_q = self.policy.critic_target.q_values(batch.next_observations, next_actions)
        return batch.rewards + batch.discounts * next_q.amin(0)

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' Q-values of the batch's actions. -> [K, B]"""
        return self.policy.critic.q_values(batch.observations, batch.actions)

    def q_of_policy(self, batch: Transition, actions: Tensor) -> Tensor:
        """Returns the first critic's Q-values of the actor's actions [B, A]. -> [B]"""
        return self.policy.critic.q1_forward(batch.observations, actions).flatten()

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. q [K, B] of the batch's actions, target [B]"""
        return Objective(critic_loss(q, target, batch.weights), td_error=(q - target).detach().abs().mean(0))

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        """Returns the actor's loss. Its own actions [B, A] and their q [B]"""
        return Objective(actor_loss(q))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class TD3(Smoothed, OffPolicyAlgorithm):
    """Twin Delayed DDPG: a deterministic actor with twin critics (arXiv:1802.09477)."""

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY

    learner_class: ClassVar[type[Learner]] = TD3Learner
    policies: ClassVar = policy_aliases(ContinuousPolicy, ContinuousPolicy, actor="deterministic")

    card: ClassVar[Card] = Card(
        idea="DDPG with two critics, smoothed targets and a delayed actor",
        learns_from="replay",
        search=Search(
            tune.actor_critic(tune.action_noise()),
            tune.log_uniform("target_policy_noise", 1e-3, 0.4),
            tune.whole("policy_delay", 1, 4),
        ),
    )
