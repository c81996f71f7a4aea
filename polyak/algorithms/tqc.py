"""Truncated Quantile Critics (TQC).

Kuznetsov, Shvechikov, Grishin and Vetrov 2020, "Controlling Overestimation Bias with Truncated Mixture of Continuous
Distributional Quantile Critics", arXiv:2005.04269. SAC with critics that learn quantiles of returns: the target drops
the highest quantiles of all critics together, where SAC takes the smaller of two values.

Shapes: B batch rows, A action dimensions, K critics, N quantiles of each, M quantiles of the target.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.sac import SAC, SACLearner
from polyak.experience import Transition
from polyak.hyperparameters.declaration import Natural, require
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable
from polyak.nn.catalog import policy_aliases
from polyak.nn.errors import PolicyError
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.nn.policies.quantile_critic import QuantileCritic
from polyak.ops.distributional import midpoints, quantile_huber_loss

# -- losses ------------------------------------------------------------------------------------------------------------


def truncated(quantiles: Tensor, drop: int) -> Tensor:
    """The K(N - drop) lowest of all critics' quantiles, ascending: figure 2. [K, B, N] -> [B, M]"""
    critics, _, each = quantiles.shape
    pooled = quantiles.transpose(0, 1).flatten(1).sort(1).values
    return pooled[:, : critics * (each - drop)]


def critic_loss(quantiles: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Mean over critics, rows, quantiles and targets of the quantile Huber loss. The paper sums over critics.

    Args:
        quantiles: [K, B, N].
        target: [B, M].
        weights: [B].
    Returns:
        [].
    """
    levels = midpoints(quantiles.shape[2], quantiles.device).to(quantiles.dtype)
    return (weights * quantile_huber_loss(quantiles, target, levels)).mean() / len(levels)


def actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """E[alpha log pi(a|s) - mean of all quantiles], algorithm 1: without truncation. q [K, B], log_prob [B] -> []"""
    return (alpha * log_prob - q.mean(0)).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class TQCLearner(SACLearner):
    """SAC's gradient step with quantiles."""

    top_quantiles_to_drop_per_net: Tunable[int]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        critic, drop = self.policy.critic, self.top_quantiles_to_drop_per_net
        if not isinstance(critic, QuantileCritic):
            raise PolicyError(f"TQC needs a policy with a QuantileCritic, but its critic is a {type(critic).__name__}.")
        fix = f"a critic has n_quantiles={critic.n_quantiles}, of which one at least must remain: drop fewer."
        require(drop < critic.n_quantiles, "top_quantiles_to_drop_per_net", drop, fix)

    @torch.no_grad()
    def td_target(self, batch: Transition, alpha: Tensor) -> Tensor:
        """Returns the targets' quantiles, section 3 and algorithm 1. -> [B, M]"""
        next_actions, next_log_prob = self.policy.actor.action_log_prob(batch.next_observations)
        critic: Any = self.policy.critic_target
        kept = truncated(critic.quantiles(batch.next_observations, next_actions), self.top_quantiles_to_drop_per_net)
        soft = kept - (alpha * next_log_prob)[:, None]
        return batch.rewards[:, None] + batch.discounts[:, None] * soft

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' quantiles of the batch's actions. -> [K, B, N]"""
        critic: Any = self.policy.critic
        return critic.quantiles(batch.observations, batch.actions)

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. Quantiles q [K, B, N] of the batch's actions, target [B, M]"""
        td_error = (q.mean(2) - target.mean(1)).detach().abs().mean(0)
        return Objective(critic_loss(q, target, batch.weights), td_error=td_error)

    def actor_objective(
        self, batch: Transition, actions: Tensor, log_prob: Tensor, q: Tensor, alpha: Tensor
    ) -> Objective:
        return Objective(actor_loss(q, log_prob, alpha))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class TQC(SAC):
    """Truncated Quantile Critics: SAC with distributional critics that overestimate less (arXiv:2005.04269).

    ``policy_kwargs`` may hold ``n_quantiles`` (25) of each of the ``n_critics`` (2; the paper uses 5).
    """

    _: KW_ONLY
    top_quantiles_to_drop_per_net: Natural = 2
    """Highest quantiles left out of the target, per critic; fewer than ``n_quantiles``. 0 drops none."""

    learner_class: ClassVar[type[Learner]] = TQCLearner
    policies: ClassVar = policy_aliases(
        ContinuousPolicy, actor="squashed_gaussian", critic=QuantileCritic, net_arch=[256, 256]
    )

    card: ClassVar[Card] = Card(
        idea="SAC with distributional critics, of which the target drops the highest quantiles",
        learns_from="replay",
        search=Search(
            tune.of_policy(tune.one_of("n_quantiles", [10, 25, 50])),
            tune.actor_critic(tune.whole("top_quantiles_to_drop_per_net", 0, 9)),
        ),
    )
