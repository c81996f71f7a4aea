"""SimBa: soft actor-critic with scalable residual networks.

Lee et al. 2024, "SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning", arXiv:2410.09754.
Observations standardised by running statistics, residual blocks with layer normalisation, weight decay, and two updates
per environment step. The losses are those of :mod:`polyak.algorithms.sac`.

Shapes: those of :mod:`polyak.algorithms.sac`.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.sac import SAC, SACLearner
from polyak.callbacks.callback import BaseCallback
from polyak.fields.off_policy import GradientSteps
from polyak.hyperparameters.changing import WithNetworks, WithOptimizer
from polyak.hyperparameters.declaration import Count, LearningRate, Natural, NonNegative
from polyak.learning.learner import Learner, LearnerRecipe, OptimizerRecipe
from polyak.loops.off_policy import OffPolicyLoop
from polyak.loops.training import Loop
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.simba import SimBaActor, SimBaCritic, SimBaPolicy
from polyak.parts.part import MadeOf, of_policy
from polyak.parts.replay import minus_action_dim

# -- one gradient step -------------------------------------------------------------------------------------------------


class SimBaLearner(SACLearner):
    """SAC's gradient steps with half the target entropy."""

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        if recipe.values["target_entropy"] == "auto":
            self.target_entropy = minus_action_dim(self.policy.action_space) / 2


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def observe(model: Any) -> None:
    """Update the running statistics by the current observations, before a step."""
    if isinstance(model.policy, SimBaPolicy) and model.runner.obs is not None:
        model.policy.observe(model.runner.obs)


def observing_loop(model: Any, callback: BaseCallback, log_interval: int | None) -> Loop:
    """Creates the loop of a model whose policy updates its statistics before each action."""
    loop = OffPolicyLoop.of(model, callback, log_interval)
    if isinstance(loop, OffPolicyLoop):
        loop.collector.before_step = (partial(observe, model),)
    return loop


@dataclass(eq=False, repr=False)
class SimBa(SAC):
    """SimBa: sample-efficient SAC with normalised observations and residual networks (arXiv:2410.09754)."""

    learning_rate: LearningRate = 1e-4
    _: KW_ONLY
    learning_starts: Natural = 5_000
    """Environment steps of random actions before the first update."""
    gradient_steps: GradientSteps = 2
    ent_coef: NonNegative | str = "auto_0.01"
    """Entropy temperature alpha: ``"auto_0.01"`` learns it from 0.01, a number fixes it."""
    target_entropy: float | Literal["auto"] = "auto"
    """Target entropy when alpha is learned; ``"auto"`` is minus half the number of action dimensions."""
    n_critics: WithNetworks[Count] = 2
    """Number of critics, whose minimum is used. With one, values are not underestimated: the authors' choice for tasks
    whose episodes end at a time limit only."""
    weight_decay: WithOptimizer[NonNegative] = 0.01
    """Decoupled weight decay of the optimizers (AdamW)."""

    loop: ClassVar[Callable[..., Loop]] = observing_loop
    made_of: ClassVar[MadeOf] = {"network": of_policy("n_critics")}
    learner_class: ClassVar[type[Learner]] = SimBaLearner
    policies: ClassVar = policy_aliases(
        SimBaPolicy, actor=SimBaActor, critic=SimBaCritic, net_arch={"pi": [128], "qf": [512, 512]}
    )

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.AdamW, {"weight_decay": self.weight_decay})

    card: ClassVar[Card] = Card(
        idea="SAC with normalised observations and residual networks; two updates a step",
        learns_from="replay",
        search=Search(
            tune.rate(),
            tune.discount(),
            tune.replay(),
            tune.updates(most=64),
            tune.soft_target(),
            tune.log_uniform("weight_decay", 1e-4, 0.1),
        ),
    )
