"""On-policy learners with an optional target critic, a lagging copy that rollouts bootstrap from.

The target critic V' evaluates a rollout: returns are G = r + gamma ((1 - lambda) V'(s') + lambda G'). Advantages are G
minus the critic's own values.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from polyak.experience import Experience, RolloutSamples
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import LearnerRecipe, Metrics, Tunable, Update
from polyak.learning.rollout_learner import OnPolicyLearner
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.ops.updates import polyak_update


class LaggingCriticLearner(OnPolicyLearner):
    """With ``tau``, values come from a lagging copy of the policy's critic; without, the learner is its parent."""

    critic_target: ActorCriticPolicy | None
    tau: Tunable[Tensor | None]
    target_update_interval: Tunable[int]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        own = getattr(self.policy, "acts_by_forward", False) and self.tau is not None
        fix = f"{type(self.policy).__name__} has a forward() of its own, whose values no copy has. Leave tau out."
        require(not own, "tau", recipe.values.get("tau"), fix)
        self.critic_target = None if self.tau is None else deepcopy(self.policy).requires_grad_(False).eval()

    def update(self, batch: RolloutSamples) -> Update:
        """Make a gradient step; the target critic is updated after every ``target_update_interval``-th."""
        update = super().update(batch)
        if self.critic_target is not None and self.steps % self.target_update_interval == 0:
            assert self.tau is not None
            polyak_update(self.policy, self.critic_target, self.tau)
        return update

    def evaluator(self, acting: Any) -> Any:
        """Returns the policy whose critic evaluates a rollout: the target copy, or the behaviour policy."""
        return acting if self.critic_target is None else self.critic_target

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        found = super().evaluation(rows, acting)
        if self.critic_target is None:
            return found
        return {**found, "values": super().evaluation(rows, self.critic_target)["values"]}

    def next_values(self, successors: Experience, acting: Any) -> Tensor:
        return super().next_values(successors, self.evaluator(acting))

    def with_advantages(self, batch: RolloutSamples, values: Tensor) -> RolloutSamples:
        """Returns a batch with advantages relative to ``values`` [B, 1] of the current critic."""
        if self.critic_target is None:  # the critic itself estimated them
            return batch
        return batch._replace(advantages=batch.returns - values.detach().flatten())


TARGET = "whether there is a lagging copy of the critic, and how fast it follows, is decided with it. Make a new model."


def check_lagging_critic(model: Any) -> None:
    """Refuse a target update interval without a target critic.

    Raises:
        HyperparameterError: ``target_update_interval`` is set without ``tau``.
    """
    there_is = model.tau is not None or model.target_update_interval == 1
    fix = "without tau there is no copy of the critic to update. Give tau as well: 1 copies."
    require(there_is, "target_update_interval", model.target_update_interval, fix)
