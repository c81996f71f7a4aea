"""Ensemble-Diversified Actor Critic (EDAC), and SAC with an ensemble of N critics (SAC-N).

An, Moon, Kim and Song 2021, "Uncertainty-Based Offline Reinforcement Learning with Diversified Q-Ensemble",
arXiv:2110.01548. SAC whose target and actor use the minimum of many critics, which is low where they disagree: away
from the data. So that fewer critics suffice, their gradients with respect to actions are kept from aligning.

Shapes: B batch rows, A action dimensions, N critics.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.sac import SAC, GaussianTemperature, SACLearner
from polyak.experience import Transition
from polyak.fields.actor_critic import SoftCritics
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, NonNegative, require
from polyak.learning.learner import Learner, Tunable, Update
from polyak.parts.part import MadeOf, of_policy

TINY = 1e-10
"""Added to the norms of gradients: a critic that is constant somewhere has no direction there."""

# -- losses ------------------------------------------------------------------------------------------------------------


def alignment(slopes: Tensor) -> Tensor:
    """1 / (N - 1) sum_{i != j} cos(dQ_i/da, dQ_j/da) of each row, eq. 5 and section 4. slopes [N, B, A] -> [B]

    Over all pairs, i = j included, the products of unit vectors add up to the square of the vectors' sum.
    """
    units = slopes / (slopes.norm(dim=2, keepdim=True) + TINY)
    pairs = units.sum(0).square().sum(1) - units.square().sum((0, 2))
    return pairs / (len(slopes) - 1)


def diversity_loss(slopes: Tensor, weights: Tensor) -> Tensor:
    """1/2 E[ES], the gradient-diversity term of algorithm 1. slopes [N, B, A], weights [B] of rows -> []

    The half matches the half of SAC's squared errors, which algorithm 1 does not have.
    """
    return 0.5 * (weights * alignment(slopes)).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class EDACLearner(SACLearner):
    """SAC's gradient steps with an ensemble of critics that disagree outside of the data."""

    eta: Tunable[float]

    def improve_critics(self, batch: Transition, alpha: Tensor) -> Update:
        """Makes the critics' step of algorithm 1; without ``eta`` it is SAC's, which gives SAC-N."""
        if self.eta == 0:
            return super().improve_critics(batch, alpha)
        target = self.td_target(batch, alpha)
        q, slopes = self.estimates_and_slopes(batch)
        diversity = diversity_loss(slopes, batch.weights)
        critic = self.critic_objective(batch, q, target).plus(self.eta * diversity, diversity_loss=diversity.detach())
        self.minimise("critic", critic.loss)
        return Update({"critic_loss": critic.loss.detach(), **critic.metrics}, critic.td_error)

    def estimates_and_slopes(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """Returns the critics' Q-values of the batch's actions, and their differentiable action gradients: [N, B], [N,
        B, A]"""
        actions = batch.actions.flatten(1).detach().requires_grad_()
        each = self.policy.critic(batch.observations, actions)
        slopes = [torch.autograd.grad(q.sum(), actions, create_graph=True)[0] for q in each]
        return torch.cat(each, 1).T, torch.stack(slopes)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class EDAC(SoftCritics, OfflineAlgorithm, OffPolicyAlgorithm):
    """Ensemble-Diversified Actor Critic: SAC with many diversified critics (arXiv:2110.01548).

    With ``eta=0`` it is SAC-N.
    """

    _: KW_ONLY
    n_critics: WithNetworks[Count] = 10
    """Number of critics, N. For SAC-N the authors need up to 500."""
    eta: NonNegative = 1.0
    """Weight of the diversity term of the critics' action gradients, relative to squared errors; 0: none."""

    made_of: ClassVar[MadeOf] = {"temperature": GaussianTemperature, "network": of_policy("n_critics")}
    learner_class: ClassVar[type[Learner]] = EDACLearner
    policies: ClassVar = SAC.policies

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = "a single critic has no other to be kept apart from. Use n_critics=2 or more, or eta=0."
        require(self.n_critics > 1 or self.eta == 0, "eta", self.eta, fix)

    card: ClassVar[Card] = Card(
        idea="SAC with the smallest of many critics, which are kept apart; SAC-N",
        learns_from="a dataset",
        search=Search(tune.from_data(), tune.one_of("n_critics", [5, 10, 20, 50]), tune.log_uniform("eta", 0.1, 10.0)),
    )
