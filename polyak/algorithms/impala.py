"""Importance-weighted actor-learner architecture (IMPALA): actors continue during learning, and V-trace corrects for
their policy lag.

Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures",
arXiv:1802.01561. Equations and sections refer to it. V-trace itself is :func:`polyak.ops.returns.vtrace`.

Shapes: T steps of N environments.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.fields.asynchronous import AsynchronousAlgorithm
from polyak.hyperparameters.changing import WithOptimizer
from polyak.hyperparameters.declaration import Fraction, Positive
from polyak.learning.learner import Learner, Objective, OptimizerRecipe, Tunable, Update
from polyak.learning.rollout_learner import entropy_loss
from polyak.learning.vtrace_learner import Evaluated, Unroll, VTraceLearner

# -- losses ------------------------------------------------------------------------------------------------------------


def policy_gradient_loss(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """-E[log pi(a|x) rho (r + gamma v' - V(x))], section 4.2; ``advantages`` is everything but the logarithm.

    log_probs [T, N], advantages [T, N] -> []
    """
    return -(log_probs * advantages).mean()


def value_loss(values: Tensor, targets: Tensor) -> Tensor:
    """E[(v - V(x))^2] / 2, section 4.2. values [T, N], targets v [T, N] -> []"""
    return ((targets - values) ** 2).mean() / 2


def unexplained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """Var[v - V(x)] / Var[v]: 0 is perfect, 1 no better than the mean. values [T, N], targets v [T, N] -> []"""
    return (targets - values).var(correction=0) / targets.var(correction=0).clamp_min(1e-12)


# -- one gradient step -------------------------------------------------------------------------------------------------


class IMPALALearner(VTraceLearner):
    """A stochastic actor with a value function, and one optimizer."""

    optimized = ("policy",)
    ent_coef: Tunable[Tensor]
    vf_coef: Tunable[Tensor]
    max_grad_norm: Tunable[Tensor | None]

    def gradient_step(self, batch: Unroll) -> Update:
        """Makes a gradient step on the objective."""
        objective = self.objective(batch, self.evaluate_unroll(self.policy, batch))
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update({"loss": objective.loss.detach(), **objective.metrics})

    def objective(self, batch: Unroll, evaluated: Evaluated) -> Objective:
        """Returns policy gradient, value and entropy losses together, section 4.2. ``evaluated`` by the current policy."""
        targets, advantages = self.vtrace(batch, evaluated.values, evaluated.log_probs)
        loss_pi = policy_gradient_loss(evaluated.log_probs, advantages)
        return self.with_values(loss_pi, evaluated, targets)

    def with_values(self, loss_pi: Tensor, evaluated: Evaluated, targets: Tensor) -> Objective:
        """Returns a policy loss [] plus value and entropy losses."""
        values = evaluated.values[:-1]
        loss_v = value_loss(values, targets)
        loss_s = entropy_loss(evaluated.entropy, evaluated.log_probs)
        with torch.no_grad():
            explained = 1 - unexplained_variance(values, targets)
        metrics = {
            "policy_gradient_loss": loss_pi.detach(),
            "value_loss": loss_v.detach(),
            "entropy_loss": loss_s.detach(),
            "explained_variance": explained,
        }
        return Objective(loss_pi + self.vf_coef * loss_v + self.ent_coef * loss_s, metrics)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class IMPALA(AsynchronousAlgorithm):
    """Acting and learning at the same time, with V-trace corrections (arXiv:1802.01561)."""

    _: KW_ONLY
    use_rms_prop: WithOptimizer[bool] = False
    """Optimize with RMSprop, as in the paper; ``False`` uses Adam."""
    rms_prop_eps: WithOptimizer[Positive] = 0.1
    """RMSprop's epsilon."""
    rms_prop_decay: WithOptimizer[Fraction] = 0.99
    """RMSprop's decay rate of the average of squared gradients."""
    rms_prop_momentum: WithOptimizer[Fraction] = 0.0
    """RMSprop's momentum."""

    learner_class: ClassVar[type[Learner]] = IMPALALearner

    def _default_optimizer(self) -> OptimizerRecipe:
        if not self.use_rms_prop:
            return OptimizerRecipe(torch.optim.Adam)
        options = {"alpha": self.rms_prop_decay, "eps": self.rms_prop_eps, "momentum": self.rms_prop_momentum}
        return OptimizerRecipe(torch.optim.RMSprop, options)

    card: ClassVar[Card] = Card(
        idea="acting and learning at once, with V-trace between them",
        learns_from="rollouts of a slightly older policy",
        search=Search(tune.lagging_rollouts(), tune.choice("use_rms_prop")),
    )
