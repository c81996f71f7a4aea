"""TD3 with behaviour cloning (TD3+BC).

Fujimoto and Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning", arXiv:2106.06860. Equation numbers
refer to it.

Shapes: B batch rows, A action dimensions. Actions are in units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.td3 import TD3, TD3Learner
from polyak.experience import Transition
from polyak.fields.actor_critic import Smoothed
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.declaration import NonNegative
from polyak.learning.learner import Learner, Objective, Tunable

# -- losses ------------------------------------------------------------------------------------------------------------


def actor_loss(q: Tensor, actions: Tensor, recorded: Tensor, alpha: Tensor) -> Tensor:
    """-E[lambda Q(s, pi(s)) - (pi(s) - a)^2], lambda = alpha / mean |Q|, eq. 4 and 5. q [B]; both actions [B, A] -> []

    The normaliser has no gradient, and the squares are averaged over dimensions, as in the authors' code.
    """
    scale = alpha / q.detach().abs().mean()
    return ((actions - recorded) ** 2).mean() - scale * q.mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class TD3BCLearner(TD3Learner):
    """TD3's gradient steps with behaviour cloning of the actor."""

    alpha: Tunable[Tensor]

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        """Returns the actor's loss. Its own actions [B, A] and their q [B]"""
        return Objective(actor_loss(q, actions, batch.actions.flatten(1), self.alpha))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class TD3BC(Smoothed, OfflineAlgorithm, OffPolicyAlgorithm):
    """TD3+BC: offline learning with an actor that maximises value and clones behaviour (arXiv:2106.06860)."""

    _: KW_ONLY
    alpha: NonNegative = 2.5
    """Weight of the value relative to cloning; 0 only clones."""

    learner_class: ClassVar[type[Learner]] = TD3BCLearner
    policies: ClassVar = TD3.policies

    card: ClassVar[Card] = Card(
        idea="TD3 whose actor also clones",
        learns_from="a dataset, then replay",
        search=Search(tune.from_data(), tune.log_uniform("alpha", 0.1, 10.0)),
        title="TD3+BC",
    )
