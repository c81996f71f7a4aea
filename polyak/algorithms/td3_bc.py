"""TD3 with behaviour cloning (TD3+BC).

Fujimoto and Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning", arXiv:2106.06860. Equation numbers are
theirs.

Shapes: B batch rows, A action dimensions. Actions are in units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from gymnasium import spaces
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.td3 import TD3, TD3Learner
from polyak.experience import Transition
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, Objective, Tunable
from polyak.noise import ActionNoise

# -- losses ------------------------------------------------------------------------------------------------------------


def actor_loss(q: Tensor, actions: Tensor, recorded: Tensor, alpha: Tensor) -> Tensor:
    """-E[lambda Q(s, pi(s)) - (pi(s) - a)^2], lambda = alpha / mean |Q|, eq. 4 and 5. q [B]; both actions [B, A] -> []

    The normaliser is a number, not a function of the actor, and the squares are averaged over dimensions, as the
    authors' code does.
    """
    scale = alpha / q.detach().abs().mean()
    return ((actions - recorded) ** 2).mean() - scale * q.mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class TD3BCLearner(TD3Learner):
    """TD3's steps, whose actor stays near the recorded actions."""

    alpha: Tunable[Tensor]

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        """Of the actor. Its own actions [B, A] and q [B] of those"""
        return Objective(actor_loss(q, actions, batch.actions.flatten(1), self.alpha))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class TD3BC(OfflineAlgorithm, OffPolicyAlgorithm):
    """TD3+BC: offline learning with an actor that maximises value and clones behaviour (arXiv:2106.06860)."""

    _: KW_ONLY
    tau: Fraction = 0.005
    """Rate at which target networks follow, in [0, 1]; 1 copies."""
    policy_delay: Count = 2
    """Critic steps per step of the actor and the targets."""
    target_policy_noise: NonNegative | None = 0.2
    """Standard deviation of the normal noise that smooths the target actions; ``None``: the noise is uniform in
    [-target_noise_clip, target_noise_clip]."""
    target_noise_clip: NonNegative = 0.5
    """Largest such noise."""
    action_noise: ActionNoise | None = None
    """Noise added to the actions while collecting, in units of the action space scaled to [-1, 1]."""
    alpha: NonNegative = 2.5
    """Weight of the value against that of cloning; 0 clones alone."""

    learner_class: ClassVar[type[Learner]] = TD3BCLearner
    policies: ClassVar = TD3.policies
    action_spaces: ClassVar = (spaces.Box,)
    policies_squash: ClassVar = True
    actor = Held("policy.actor")
    actor_target = Held("policy.actor_target")
    critic = Held("policy.critic")
    critic_target = Held("policy.critic_target")

    card: ClassVar[Card] = Card(
        idea="TD3 whose actor also clones",
        learns_from="a dataset, then replay",
        search=Search(tune.from_data(), tune.log_uniform("alpha", 0.1, 10.0)),
        title="TD3+BC",
    )
