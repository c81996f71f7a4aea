"""Asynchronous proximal policy optimization (APPO): PPO's clipping on IMPALA's architecture, with a target network.

Luo et al. 2019, "IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks",
arXiv:1912.00167. Sections refer to it. There are three policies: the learned policy pi, the behaviour policy mu, and
the target network, which follows pi; V-trace (:func:`polyak.ops.returns.vtrace`) estimates the target's advantages.

Shapes: T steps of N environments.
"""

import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.impala import IMPALALearner
from polyak.algorithms.ppo import log_ranges, next_kl_coef
from polyak.fields.asynchronous import AsynchronousAlgorithm
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive, Scheduled, require
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.learning.vtrace_learner import Evaluated, Unroll, in_time, rows_of
from polyak.loops.asynchronous import log_lag
from polyak.loops.updates import Gained
from polyak.nn.distributions.base import Distribution
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.ops.updates import polyak_update
from polyak.parts.asynchronous import UsedAgain
from polyak.parts.part import MadeOf
from polyak.schedules import Schedule

# -- losses ------------------------------------------------------------------------------------------------------------


def log_ratios(log_probs: Tensor, acting: Tensor, target: Tensor, clip: Tensor) -> Tensor:
    """log of r = min(mu / pi_target, rho) pi / mu, section 3.1: pi / pi_target unless mu is much more likely.

    For the actions taken: log_probs log pi [T, N], acting log mu [T, N], target log pi_target [T, N], clip rho [] ->
    [T, N]
    """
    return torch.minimum(acting - target, clip.log()) + log_probs - acting


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: Tensor) -> Tensor:
    """-E[min(r A, clip(r, 1 - eps, 1 + eps) A)], section 3.1. log_ratio log r [T, N], advantages [T, N] -> []"""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class APPOLearner(IMPALALearner):
    """A stochastic actor with a value function, one optimizer, and a target network of both."""

    target_policy: ActorCriticPolicy
    clip_range: Tunable[Tensor]
    target_worker_clip: Tunable[Tensor]
    kl_coef: Tunable[Tensor | None]
    tau: Tunable[Tensor]
    target_update_interval: Tunable[int]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.target_policy = copy.deepcopy(self.policy, {id(optimizer): None for optimizer in self.optimizers.values()})
        self.target_policy.requires_grad_(False)

    def update(self, batch: Unroll) -> Update:
        """Makes a gradient step on a rollout; updates the target network every ``target_update_interval`` steps."""
        self.target_policy.set_training_mode(False)
        update = super().update(batch)
        if self.steps % self.target_update_interval == 0:
            self.update_target()
        return update

    @torch.no_grad()
    def update_target(self) -> None:
        """Move the target network towards the learned one."""
        polyak_update(self.policy, self.target_policy, self.tau)

    def distribution(self, policy: ActorCriticPolicy, batch: Unroll) -> Distribution:
        """Returns a policy's distribution of actions [N * T, ...] at the observations of a rollout."""
        named: dict[str, Any] = self.columns(batch)
        masks = named.pop("masks", None)
        distribution = copy.copy(policy.get_distribution(self.observations(batch), **named))
        return distribution if masks is None else distribution.masked(masks)

    def objective(self, batch: Unroll, evaluated: Evaluated) -> Objective:
        """Returns clipped surrogate, value and entropy losses together, section 3.1. ``evaluated`` by the current
        policy."""
        acting, actions = batch.trajectory.log_probs, rows_of(batch.trajectory.actions)
        with torch.no_grad():
            before = self.distribution(self.target_policy, batch)
            target = in_time(self.target_policy.log_prob_of(actions, before), acting)
        targets, advantages = self.vtrace(batch, evaluated.values, target)
        log_ratio = log_ratios(evaluated.log_probs, acting, target, self.target_worker_clip)
        objective = self.with_values(clipped_surrogate(log_ratio, advantages, self.clip_range), evaluated, targets)
        with torch.no_grad():
            clipped = ((log_ratio.exp() - 1).abs() > self.clip_range).float().mean()
        objective = objective._replace(metrics={**objective.metrics, "clip_fraction": clipped})
        if self.kl_coef is None:
            return objective
        kl = before.kl(self.distribution(self.policy, batch)).mean()
        (of_all,) = self.averaged([kl.detach()])  # equal weights for all learners
        return objective.plus(self.kl_coef * kl, kl=of_all)


# -- after each update -------------------------------------------------------------------------------------------------


def move_kl_coef(model: Any, outcome: Gained) -> None:
    """Adapt the weight of the KL penalty to ``kl_target`` after an update of the target network."""
    steps, interval = model.learner.steps, model.target_update_interval
    if model.kl_target is not None and steps // interval > (steps - outcome.updates) // interval:
        model._put(kl_coef=next_kl_coef(model.kl_coef, float(outcome.metrics["kl"][-1]), model.kl_target))
        model.learner.set(kl_coef=model.kl_coef)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class ClippedUses(UsedAgain):
    """Logs clipping ranges and adapts the KL penalty."""

    watching: ClassVar = (log_lag, log_ranges, move_kl_coef)

    def check(self) -> None:
        super().check()
        fix = "there is no weight that could move. Give kl_coef as well."
        require(self.model.kl_target is None or self.model.kl_coef is not None, "kl_target", self.model.kl_target, fix)


@dataclass(eq=False, repr=False)
class APPO(AsynchronousAlgorithm):
    """Asynchronous PPO: acting and learning at the same time, with clipped steps and a target network
    (arXiv:1912.00167)."""

    _: KW_ONLY
    clip_range: Scheduled[Positive | Schedule] = 0.4
    """Clipping range of the probability ratio to the target network; a number or a schedule."""
    target_worker_clip: Positive = 2.0
    """Largest ratio of the behaviour policy's probability to the target network's before the action is down-weighted.
    """
    target_update_interval: Count = 32
    """Gradient steps between two updates of the target network."""
    tau: Fraction = 1.0
    """Update rate of the target network at each of its updates, in [0, 1]; 1 copies."""
    circular_buffer_size: Reload[Count] = 8
    """Rollouts that the learner draws from, if it is ``asynchronous`` and they arrive faster than it uses them: see
    :class:`~polyak.experience.reused_batches.CircularBuffer`."""
    uses_per_rollout: Reload[Count] = 2
    """Largest number of gradient steps on a rollout."""
    kl_coef: NonNegative | None = None
    """Weight of a penalty on the KL divergence of the policy from the target network; ``None``: no penalty."""
    kl_target: Positive | None = None
    """KL divergence that ``kl_coef`` is adapted to: at each update of the target network it is halved if the divergence
    was below 2/3 of this, and doubled if it was above 3/2. ``None``: constant ``kl_coef``."""

    learner_class: ClassVar[type[Learner]] = APPOLearner
    made_of: ClassVar[MadeOf] = {"rollouts": ClippedUses}

    card: ClassVar[Card] = Card(
        idea="IMPALA in PPO's clipped steps, with a target network",
        learns_from="rollouts of a slightly older policy",
        search=Search(
            tune.lagging_rollouts(),
            tune.uniform("clip_range", 0.05, 0.4),
            tune.power_of_two("target_update_interval", 1, 64),
            tune.whole("uses_per_rollout", 1, 8),
        ),
    )
