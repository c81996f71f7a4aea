"""MARWIL: behaviour cloning with exponential advantage weights.

Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data", NeurIPS 31. The actor is
fitted to the recorded actions with weights

    exp(beta A / c),    A = G - V(s),    c^2 += rate (E[A^2] - c^2)

where G is the discounted sum of rewards from the step to the end of its episode, and V is fitted to G by least squares.
Nothing is bootstrapped: a truncated episode ends there. With beta = 0 it is behaviour cloning.

Two choices differ from the paper's and RLlib's, in which c^2 moves by 1e-8 of the gap at each update (RLlib starts it
at 100): after 100,000 updates it has covered a thousandth of the way, so that in effect the start sets the scale. Here
c^2 starts at the mean square of the dataset's returns, which bounds that of the advantages of a fitted V, and the rate
is 1e-3, so that c reaches the size of the advantages within some thousand updates, whatever the unit of rewards. For
theirs pass ``advantage_norm_rate=1e-8, advantage_norm_start=100.0``. The exponential has no bound in the paper, either;
``max_weight`` sets one, as in AWAC (arXiv:2006.09359) and CRR (arXiv:2006.15134).

Differences from AWAC: advantages come from recorded returns instead of a critic, and are divided by their own size c.

Shapes: B batch rows, N steps of the dataset.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.bc import BC, BCLearner
from polyak.experience import Dataset, Transition
from polyak.experience.schema import Column
from polyak.fields.offline import RewardScaling
from polyak.hyperparameters.changing import WithDataset, WithNetworks
from polyak.hyperparameters.declaration import Becomes, Fraction, NonNegative, Positive, later
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.recall import RecurrentExtractor
from polyak.nn.policies.cloning import CloningPolicy
from polyak.nn.policies.valued import StateCritic
from polyak.parts.part import MadeOf
from polyak.parts.replay import DatasetReplay

# -- losses ------------------------------------------------------------------------------------------------------------


def exponential_weights(advantages: Tensor, beta: Tensor, mean_square: Tensor, largest: Tensor | None = None) -> Tensor:
    """min(exp(beta A / c), largest). advantages [B], beta [], c^2 [], largest [] or None for no bound -> [B]"""
    weights = (beta * advantages / (mean_square.sqrt() + 1e-8)).exp()
    return weights if largest is None else weights.clamp(max=largest)


def value_loss(values: Tensor, returns: Tensor, weights: Tensor) -> Tensor:
    """E[(G - V(s))^2] / 2. values [B], returns G [B], weights of rows [B] -> []"""
    return 0.5 * (weights * (returns - values) ** 2).mean()


# -- policy ------------------------------------------------------------------------------------------------------------


class ValuedCloningPolicy(CloningPolicy):
    """A :class:`~polyak.nn.policies.cloning.CloningPolicy` with a state-value network beside the actor, of the same
    width, with its own features."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.value = self.new_network(StateCritic, self.net_arch)
        if isinstance(extractor := self.value.features_extractor, RecurrentExtractor):
            extractor.prefix = "value_"  # its recurrent state is not the actor's

    def extractors(self) -> dict[nn.Module, RecurrentExtractor]:
        extractor: Any = self.value.features_extractor
        return {} if self.recurrence is None else {**super().extractors(), self.value: extractor}


# -- one gradient step -------------------------------------------------------------------------------------------------


class MARWILLearner(BCLearner):
    """Behaviour cloning with weighted rows, and the state values that the weights depend on."""

    optimized: ClassVar[tuple[str, ...]] = ("value",)
    policy: ValuedCloningPolicy
    beta: Tunable[Tensor]
    vf_coef: Tunable[Tensor]
    advantage_norm_rate: Tunable[Tensor]
    advantage_norm_start: Tunable[float]
    max_weight: Tunable[Tensor | None]
    mean_square: Tensor
    """[] c^2, the moving average of squared advantages."""

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.register_buffer("mean_square", torch.tensor(float(self.advantage_norm_start)))

    def gradient_step(self, batch: Transition) -> Update:
        """Makes the steps of algorithm 1: actor and values are updated from the same values."""
        actor, value, metrics = self.objectives(batch)
        self.minimise("actor", actor.loss)
        self.minimise("value", value.loss)
        return Update(metrics)

    def objectives(self, batch: Transition) -> tuple[Objective, Objective, dict[str, Tensor]]:
        """Returns the actor's and the state values' losses, and the metrics."""
        values = self.policy.value(batch.observations)
        advantages = (batch.extras["returns_to_go"] - values).detach()
        self.measure(advantages)
        weights = exponential_weights(advantages, self.beta, self.mean_square, self.max_weight)
        actor = self.actor_objective(batch._replace(weights=batch.weights * weights))
        value = self.value_objective(batch, values)
        losses = {"actor_loss": actor.loss.detach(), "value_loss": value.loss.detach()}
        scale = {"advantage": advantages.mean(), "advantage_norm": self.mean_square.sqrt()}
        return actor, value, {**losses, **scale, **actor.metrics, **value.metrics}

    @torch.no_grad()
    def measure(self, advantages: Tensor) -> None:
        """Update c^2 by the advantages [B] of a minibatch."""
        (found,) = self.averaged([advantages.square().mean()])
        self.mean_square.lerp_(found, self.advantage_norm_rate)

    def value_objective(self, batch: Transition, values: Tensor) -> Objective:
        """Returns the value loss. values [B]"""
        return Objective(self.vf_coef * value_loss(values, batch.extras["returns_to_go"], batch.weights))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class WithReturns(DatasetReplay):
    """Replays transitions with their returns-to-go."""

    def returns_to_go(self, dataset: Dataset) -> np.ndarray:
        """Returns the returns-to-go [N]."""
        return dataset.returns_to_go(self.model.gamma, self.rewards(dataset.rewards))

    def columns(self) -> tuple[Column, ...]:
        return (Column("returns_to_go", np.float32),)

    def with_columns(self, dataset: Dataset) -> Dataset:
        return dataset.with_columns({"returns_to_go": self.returns_to_go(dataset)})


@dataclass(eq=False, repr=False)
class MARWIL(BC):
    """Monotonic advantage re-weighted imitation learning: clone better actions with larger weights (Wang et al. 2018).

    It learns from a dataset of whole episodes, whose behaviour policy may be unknown.
    """

    _: KW_ONLY
    beta: NonNegative = 1.0
    """Inverse temperature of the weights exp(beta * advantage / c). 0 clones."""
    gamma: WithDataset[Fraction] = 0.99
    """Discount factor of returns-to-go, in [0, 1]."""
    vf_coef: NonNegative = 1.0
    """Weight of the value loss."""
    advantage_norm_rate: Fraction = 1e-3
    """Update rate of c^2 by the squared advantages of minibatches, in [0, 1]; 0 keeps its initial value. The paper's
    and RLlib's is 1e-8, which hardly moves it."""
    advantage_norm_start: WithNetworks[Becomes[Positive | None, float]] = later(None)
    """Initial c^2; ``None``: the mean square of the dataset's returns-to-go. RLlib's is 100."""
    max_weight: Positive | None = None
    """Upper bound of the weights exp(beta * advantage / c), such as 20 (CRR) or 100 (AWAC); ``None``: no bound, as in
    the paper. Without it, a few rows of large advantage can outweigh all others, and a large ``beta`` can overflow."""
    stochastic: bool = True
    """For continuous actions: fit a Gaussian by likelihood, and sample from it; ``False`` fits an action by weighted
    squared error. Discrete actions always use likelihood."""
    reward_scaling: RewardScaling | tuple[float, float] = "none"
    """Scaling of rewards: ``"standard"`` subtracts their mean and divides by their standard deviation; ``"range"`` maps
    them to [0, 1]; ``"returns"`` multiplies by 1000 and divides by the range of the episodes' returns; ``(scale,
    shift)`` multiplies and adds. Statistics are those of the dataset."""

    made_of: ClassVar[MadeOf] = {"replay": WithReturns}
    learner_class: ClassVar[type[Learner]] = MARWILLearner
    policies: ClassVar = policy_aliases(ValuedCloningPolicy, ValuedCloningPolicy)
    value = Held("policy.value")
    """The state-value network."""

    def learner_factory(self) -> Any:
        if self.advantage_norm_start is None:
            start = 1.0 if self.dataset is None else float(np.square(self.replay.returns_to_go(self.dataset)).mean())
            self.advantage_norm_start = start or 1.0
        return super().learner_factory()

    card: ClassVar[Card] = Card(
        idea="clone the actions that came out better than expected, exponentially more",
        learns_from="a dataset",
        search=Search(
            tune.of_data(),
            tune.log_uniform("beta", 0.1, 10.0),
            tune.log_uniform("advantage_norm_rate", 1e-5, 0.1),
            tune.entropy(),
        ),
    )
