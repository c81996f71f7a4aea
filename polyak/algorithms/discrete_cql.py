"""Conservative Q-Learning for discrete actions.

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-Learning for Offline Reinforcement Learning", arXiv:2006.04779.
Equation numbers refer to it. DQN, or QR-DQN, with a penalty on high values of actions outside the data; the sum over
all actions, which :mod:`polyak.algorithms.cql` estimates, is exact here.

Shapes: B batch rows, A actions, N quantiles.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.dqn import DQN, DQNLearner, allowed, taken
from polyak.algorithms.qrdqn import QRDQN, QRDQNLearner
from polyak.experience import Transition
from polyak.fields.offline import OfflineAlgorithm
from polyak.fields.values import CarefulTargets
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, NonNegative
from polyak.learning.learner import Learner, Objective, Tunable

# -- losses ------------------------------------------------------------------------------------------------------------


def conservative_gap(q: Tensor, actions: Tensor) -> Tensor:
    """log sum_a exp Q(s, a) - Q(s, a_data), eq. 4. q [B, A], actions [B] -> [B]"""
    return q.logsumexp(1) - taken(q, actions)


# -- one gradient step -------------------------------------------------------------------------------------------------


class DiscreteCQLLearner(DQNLearner):
    """Adds the penalty to the objective of DQN, and of its extensions with several numbers per action."""

    conservative_weight: Tunable[Tensor]

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        values = allowed(self.means(q), batch.extras.get("masks"))
        gap = (batch.weights * conservative_gap(values, batch.actions.long())).mean()
        bellman = super().objective(batch, q, target)
        return bellman.plus(self.conservative_weight * gap, conservative_gap=gap.detach())

    def means(self, q: Tensor) -> Tensor:
        """Returns the action values of a prediction: [B, A]"""
        return q


class QuantileCQLLearner(DiscreteCQLLearner, QRDQNLearner):
    """Conservative Q-learning with quantiles."""

    def means(self, q: Tensor) -> Tensor:
        """Returns the means of quantiles: [B, N, A] -> [B, A]"""
        return q.mean(1)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DiscreteCQL(CarefulTargets, OfflineAlgorithm, DQN):
    """Conservative Q-Learning for discrete actions: DQN that penalises high values of actions outside the data
    (arXiv:2006.04779)."""

    _: KW_ONLY
    conservative_weight: NonNegative = 1.0
    """Weight of the gap between all actions and the recorded ones, relative to the temporal-difference loss."""
    n_quantiles: WithNetworks[Count | None] = None
    """Learn this many quantiles of returns, like QR-DQN, whose means are compared; ``None``: values only."""

    learner_class: ClassVar[type[Learner]] = DiscreteCQLLearner

    def _policy_called(self, name: str) -> Any:
        plain = super()._policy_called(name)
        return plain if self.n_quantiles is None else QRDQN.policies[name]

    def _policy_options(self) -> dict[str, Any]:
        quantiles = {} if self.n_quantiles is None else {"n_quantiles": self.n_quantiles}
        return {**super()._policy_options(), **quantiles}

    def learner_factory(self) -> Callable[[], Learner]:
        recipe: Any = super().learner_factory()
        return recipe if self.n_quantiles is None else replace(recipe, learner_class=QuantileCQLLearner)

    card: ClassVar[Card] = Card(
        idea="DQN, or QR-DQN, that thinks little of what the data do not show",
        learns_from="a dataset",
        search=Search(
            tune.of_data(),
            tune.log_uniform("conservative_weight", 0.1, 20.0),
            tune.one_of("target_update_interval", [100, 500, 1_000, 5_000]),
        ),
    )
