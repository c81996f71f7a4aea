"""SAC with one more term in the actor's loss: it shall act alike in states that follow each other.

Mysore et al. 2021, "Regularizing Action Policies for Smooth Control with Reinforcement Learning",
arXiv:2012.06644, eq. 1.
"""

from dataclasses import KW_ONLY, dataclass

from polyak import SAC
from polyak.algorithms.sac import SACLearner
from polyak.custom import NonNegative, Objective, Tunable


class SmoothLearner(SACLearner):
    smoothness: Tunable[float]  # follows the hyper-parameter of this name

    def actor_objective(self, batch, actions, log_prob, q, alpha) -> Objective:
        """SAC's, plus the distance [] between the mean actions [B, A] of a state and of the next."""
        now, then = (self.policy.actor(o, deterministic=True) for o in (batch.observations, batch.next_observations))
        jerk = (now - then).square().sum(1).mean()
        objective = super().actor_objective(batch, actions, log_prob, q, alpha)
        return objective.plus(self.smoothness * jerk, jerk=jerk.detach())


@dataclass(eq=False, repr=False)
class SmoothSAC(SAC):
    """SAC whose actions change little from step to step."""

    _: KW_ONLY
    smoothness: NonNegative = 0.1
    """Weight of the term."""

    learner_class = SmoothLearner
