"""Soft Actor-Critic for discrete actions (DiscreteSAC).

Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207. Equation numbers refer to it.

It replaces SAC's sampled actions by the exact expectation over all actions.

Shapes: B batch rows, A actions, K critics.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.sac import SACLearner, Temperature, temperature_loss
from polyak.experience import Transition
from polyak.fields.actor_critic import Entropy, Spaced
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.declaration import Fraction
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, Objective, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.categorical import CategoricalPolicy
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf

# -- losses; those of critics and temperature are SAC's ---------------------------------------------------------------


def soft_value(q: Tensor, log_pi: Tensor, alpha: Tensor) -> Tensor:
    """V(s) = sum_a pi(a|s) (min_k Q_k(s, a) - alpha log pi(a|s)), eq. 10. q [K, B, A], log_pi [B, A] -> [B]"""
    return (log_pi.exp() * (q.amin(0) - alpha * log_pi)).sum(1)


def actor_loss(q: Tensor, log_pi: Tensor, alpha: Tensor) -> Tensor:
    """J_pi = E[sum_a pi(a|s) (alpha log pi(a|s) - min_k Q_k(s, a))] = -E[V(s)], eq. 12. -> []

    Its minimum is pi = softmax(min_k Q_k / alpha). q [K, B, A], log_pi [B, A]
    """
    return -soft_value(q, log_pi, alpha).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class DiscreteSACLearner(SACLearner):
    """Actor, critics with target networks, and the temperature."""

    policy: CategoricalPolicy  # type: ignore[assignment]
    use_sde: bool = False  # gSDE does not apply to discrete actions

    def gradient_step(self, batch: Transition, update_target: bool) -> Update:
        """Makes the gradient steps of algorithm 1."""
        policy, alpha = self.policy, self.temperature()
        update = self.improve_critics(batch, alpha)

        pi = policy.actor.get_distribution(batch.observations)
        with torch.no_grad():
            q_now = policy.critic.q_values(batch.observations)
        actor = self.actor_objective(batch, pi.logits, q_now, alpha)
        self.minimise("actor", actor.loss)

        entropy = pi.entropy().detach()
        metrics = {"actor_loss": actor.loss.detach(), "entropy": entropy.mean()}
        metrics |= self.improve_temperature(-entropy, alpha)
        if update_target:
            polyak_update(policy.critic, policy.critic_target, self.tau)
        return update._replace(metrics={**update.metrics, **metrics, **actor.metrics})

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' Q-values of the actions taken. -> [K, B]"""
        taken = batch.actions.long().view(1, -1, 1).expand(self.policy.n_critics, -1, -1)
        return self.policy.critic.q_values(batch.observations).gather(2, taken).squeeze(2)

    @torch.no_grad()
    def td_target(self, batch: Transition, alpha: Tensor) -> Tensor:
        """Returns the target Q-values of eq. 3 and 10, by the target critics. -> [B]"""
        log_pi = self.policy.actor.get_distribution(batch.next_observations).logits
        next_q = self.policy.critic_target.q_values(batch.next_observations)
        return batch.rewards + batch.discounts * soft_value(next_q, log_pi, alpha)

    def actor_objective(  # type: ignore[override]
        self, batch: Transition, log_pi: Tensor, q: Tensor, alpha: Tensor
    ) -> Objective:
        """Returns the actor's loss. log_pi [B, A] of all actions and q [K, B, A], without a gradient"""
        return Objective(actor_loss(q, log_pi, alpha))

    def temperature_objective(self, log_prob: Tensor) -> Objective:
        """Returns the temperature's loss, eq. 11. Mean log_prob [B] of the actor's actions: minus the entropy"""
        largest = math.log(self.policy.actor.action_family.action_dim)
        return Objective(temperature_loss(self.log_ent_coef, log_prob, self.target_entropy * largest))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DiscreteSAC(Spaced, Entropy, OffPolicyAlgorithm):
    """Soft Actor-Critic for discrete actions: maximum-entropy off-policy learning with exact means over all actions
    (arXiv:1910.07207)."""

    _: KW_ONLY
    target_entropy: Fraction = 0.1
    """Target entropy when alpha is learned, as a fraction of the maximum, log A of A actions, in [0, 1]. The paper uses
    0.98, which is almost uniform, so that the policy cannot settle on better actions."""

    made_of: ClassVar[MadeOf] = {"temperature": Temperature}
    learner_class: ClassVar[type[Learner]] = DiscreteSACLearner
    policies: ClassVar = policy_aliases(CategoricalPolicy)
    action_spaces: ClassVar = (spaces.Discrete,)
    actor = Held("policy.actor")
    """The actor network."""
    critic = Held("policy.critic")
    """The critic networks."""
    critic_target = Held("policy.critic_target")
    """The target critics."""

    card: ClassVar[Card] = Card(
        idea="SAC with exact means over all actions",
        learns_from="replay",
        search=Search(tune.actor_critic(), tune.log_uniform("target_entropy", 0.01, 0.9)),
    )
