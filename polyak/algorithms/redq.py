"""Randomized Ensembled Double Q-learning (REDQ).

Chen, Wang, Zhou and Ross 2021, "Randomized Ensembled Double Q-Learning: Learning Fast Without a Model",
arXiv:2101.05982. SAC with many gradient steps per environment step, and an ensemble of critics against overestimation:
each step's target is the minimum of a few of them, drawn at random.

Shapes: B batch rows, A action dimensions, N critics, M of them in a target.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.algorithms.sac import SAC, SACLearner, soft_value
from polyak.experience import Transition
from polyak.fields.off_policy import GradientSteps
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, require
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf, Part, of_policy

# -- losses ------------------------------------------------------------------------------------------------------------


def draw(n: int, m: int, device: torch.device) -> Tensor:
    """Draws M distinct numbers of 0 to n - 1 uniformly: the set M of algorithm 1. -> [M]"""
    return torch.rand(n, device=device).topk(m).indices


def actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """E[alpha log pi(a|s) - 1/N sum_k Q_k(s, a)], algorithm 1. q [N, B], log_prob [B] -> []"""
    return (alpha * log_prob - q.mean(0)).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class REDQLearner(SACLearner):
    """Actor, an ensemble of critics with target networks, and the temperature."""

    subset: Tunable[int]
    policy_delay: Tunable[int]

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of the critics, and updates their targets; every ``policy_delay`` steps also of the
        actor."""
        self.begin()
        moves = self.steps % self.target_update_interval == 0
        return self.with_actor(self.run(self.critic_step, batch, moves), batch)

    def critic_step(self, batch: Transition, update_target: bool) -> Update:
        """Makes the inner step of algorithm 1."""
        update = self.improve_critics(batch, self.temperature())
        if update_target:
            polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        return update

    @torch.no_grad()
    def td_target(self, batch: Transition, alpha: Tensor) -> Tensor:
        """Returns the target Q-values of all critics: eq. 1, the minimum of M target critics. -> [B]"""
        next_actions, next_log_prob = self.policy.actor.action_log_prob(batch.next_observations)
        next_q = self.policy.critic_target.q_values(batch.next_observations, next_actions)
        if self.subset < len(next_q):
            next_q = next_q[draw(len(next_q), self.subset, next_q.device)]
        return batch.rewards + batch.discounts * soft_value(next_q, next_log_prob, alpha)

    def actor_objective(
        self, batch: Transition, actions: Tensor, log_prob: Tensor, q: Tensor, alpha: Tensor
    ) -> Objective:
        """Returns the actor's loss. Its own actions [B, A], log_prob [B] and q [N, B] of those"""
        return Objective(actor_loss(q, log_prob, alpha))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class Subsets(Part):
    """Checks the subset of critics in a target."""

    def check(self) -> None:
        subset, n_critics = self.model.subset, self.model.n_critics
        require(subset <= n_critics, "subset", subset, f"there are n_critics={n_critics}.")


@dataclass(eq=False, repr=False)
class ManyUpdates:
    """Fields of algorithms that make many updates with an ensemble of critics."""

    _: KW_ONLY
    gradient_steps: GradientSteps = 20
    """Gradient steps per update; -1 makes as many as transitions were collected."""
    subset: Count = 2
    """Number of target critics whose minimum is the target, M: redrawn for each gradient step, at most ``n_critics``.
    """
    policy_delay: Count = 20
    """Gradient steps of the critics per step of the actor and the temperature."""

    made_of: ClassVar[MadeOf] = {"ensemble": Subsets}
    learner_class: ClassVar[type[Learner]] = REDQLearner


@dataclass(eq=False, repr=False)
class REDQ(ManyUpdates, SAC):
    """Randomized Ensembled Double Q-learning: SAC with an ensemble of critics and many updates (arXiv:2101.05982)."""

    _: KW_ONLY
    n_critics: WithNetworks[Count] = 10
    """Number of critics, N."""

    made_of: ClassVar[MadeOf] = {"network": of_policy("n_critics")}

    card: ClassVar[Card] = Card(
        idea="an ensemble of critics, a few of which are drawn for each target; 20 updates a step",
        learns_from="replay",
        search=tune.actor_critic(
            tune.one_of("n_critics", [2, 5, 10]), tune.whole("subset", 1, 2), how_often=tune.many_updates()
        ),
    )
