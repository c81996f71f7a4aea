"""Behaviour Cloning (BC).

Pomerleau 1989, "ALVINN: An Autonomous Land Vehicle in a Neural Network" (NeurIPS 1). Supervised learning of what to
do: the actions of a dataset are the labels of its observations.

Shapes: B batch rows, A action dimensions. Continuous actions are in units of the action space scaled to [-1, 1].
"""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.cards import Card, Search, tune
from polyak.data import Transition
from polyak.hyperparameters.declaration import NonNegative
from polyak.kinds.network_algorithm import NETWORKS, Part
from polyak.kinds.offline import OfflineAlgorithm, RewardScaling
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.policies.cloning import CloningPolicy
from polyak.schedules import Schedule

# -- losses ------------------------------------------------------------------------------------------------------------


def squared_error(actions: Tensor, recorded: Tensor, weights: Tensor) -> Tensor:
    """E[mean_j (pi(s)_j - a_j)^2], the mean over dimensions. both actions [B, A], weights [B] -> []"""
    return (weights * ((actions - recorded) ** 2).mean(1)).mean()


def negative_log_likelihood(log_prob: Tensor, weights: Tensor) -> Tensor:
    """-E[log pi(a|s)]. log_prob [B] of recorded actions, weights [B] -> []"""
    return -(weights * log_prob).mean()


def squared_norm(parameters: Iterable[Tensor]) -> Tensor:
    """1/2 sum of the squares of all parameters. -> []"""
    return 0.5 * torch.stack([(p**2).sum() for p in parameters]).sum()


# -- one gradient step -------------------------------------------------------------------------------------------------


class BCLearner(Learner):
    """An actor that does as it was shown."""

    policy: CloningPolicy
    ent_coef: Tunable[Tensor]
    l2_coef: Tunable[Tensor]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.add_optimizer("actor", self.policy.actor, recipe.make_optimizer, recipe.lr)

    def gradient_step(self, batch: Transition) -> Update:
        """Towards the recorded actions."""
        actor = self.actor_objective(batch)
        self.minimise("actor", actor.loss)
        return Update({"actor_loss": actor.loss.detach(), **actor.metrics})

    def actor_objective(self, batch: Transition) -> Objective:
        """Of the actor: likelihood, where it is a distribution that is learned, else distance."""
        penalty = self.l2_coef * squared_norm(self.policy.actor.parameters())
        if not self.policy.stochastic:
            actions = self.policy.actor(batch.observations, True)
            return Objective(squared_error(actions, batch.actions.flatten(1), batch.weights)).plus(penalty)
        distribution = self.policy.get_distribution(batch.observations)
        log_prob, entropy = distribution.log_prob(self.recorded(batch)), distribution.entropy()
        objective = Objective(negative_log_likelihood(log_prob, batch.weights), {"log_prob": log_prob.detach().mean()})
        if entropy is None:
            return objective.plus(penalty)
        bonus = self.ent_coef * (batch.weights * entropy).mean()
        return objective.plus(penalty - bonus, entropy=entropy.detach().mean())

    def recorded(self, batch: Transition) -> Tensor:
        """The batch's actions as the distribution takes them: [B] for one choice, else [B, A]."""
        return batch.actions.flatten() if self.policy.chooses_one else batch.actions.flatten(1)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class BC(OfflineAlgorithm):
    """Behaviour cloning: do what the dataset shows (Pomerleau 1989).

    It learns from a dataset alone. To be corrected while acting, take DAgger; to become better than the data, one of
    the other offline algorithms.
    """

    learning_rate: NonNegative | Schedule = 1e-3
    """Step size of the optimizer: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    stochastic: bool = False
    """For continuous actions: learn a Gaussian by its likelihood, and act by it, instead of the action of least squared
    error. Choices are always learned by their likelihood."""
    ent_coef: NonNegative = 0.0
    """Reward for the entropy of what is learned by likelihood."""
    l2_coef: NonNegative = 0.0
    """Penalty on half the sum of squares of all weights."""

    built_with: ClassVar[Mapping[str, str]] = dict.fromkeys(("stochastic",), NETWORKS)
    # what others did is learned, and not what came of it
    reward_scaling: ClassVar[RewardScaling] = "none"  # type: ignore[misc]
    learner_class: ClassVar[type[Learner]] = BCLearner
    policies: ClassVar = policy_aliases(CloningPolicy, CloningPolicy)
    action_spaces: ClassVar = SINGLE_SPACES
    policies_squash: ClassVar = True
    actor = Part("policy.actor")

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        self._check_not_twice("stochastic")

    def _policy_options(self) -> dict[str, Any]:
        return {**super()._policy_options(), "stochastic": self.stochastic}

    card: ClassVar[Card] = Card(
        idea="do what the data show",
        learns_from="a dataset",
        reference="Pomerleau 1989",
        search=Search(
            tune.rate(),
            tune.power_of_two("batch_size", 64, 1024),
            tune.log_uniform("l2_coef", 1e-8, 1e-2),
            tune.network(widest=512),
        ),
        settings="bc.yml",
    )
