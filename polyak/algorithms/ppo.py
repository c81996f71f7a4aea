"""Proximal Policy Optimization (PPO), with the clipped objective.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347. Equation numbers refer to it.

Shapes: B minibatch rows.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.experience import RolloutSamples
from polyak.experience.batch import RolloutRows
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.declaration import Count, NonNegative, Only, Positive, Scheduled, require
from polyak.learning.learner import Learner, Objective, OptimizerRecipe, Tunable, Update
from polyak.learning.rollout_learner import OnPolicyLearner, entropy_loss
from polyak.loops.updates import Gained, Minibatches
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.parts.part import MadeOf
from polyak.parts.rollouts import Rollouts
from polyak.schedules import Schedule

# -- losses ------------------------------------------------------------------------------------------------------------


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: Tensor, dual_clip: Tensor | None = None) -> Tensor:
    """-L^CLIP = -E[min(r A, clip(r, 1 - eps, 1 + eps) A)], eq. 7. log_ratio log r [B], advantages [B] -> []

    With ``dual_clip`` c, terms with A < 0 are at least c A, however large r is (Ye et al. 2020, arXiv:1912.09729, eq.
    5).
    """
    ratio = log_ratio.exp()
    gains = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    if dual_clip is not None:
        gains = torch.where(advantages < 0, torch.maximum(gains, dual_clip * advantages), gains)
    return -gains.mean()


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """L^VF = E[(V(s) - R)^2], section 5. values [B], returns [B] -> []"""
    return ((values - returns) ** 2).mean()


def clipped_values(values: Tensor, old_values: Tensor, clip: Tensor) -> Tensor:
    """Values clipped to within ``clip`` of those at the time of the rollout. values [B], old_values [B] -> [B]"""
    return old_values + (values - old_values).clamp(-clip, clip)


def next_kl_coef(coef: float, kl: float, target: float) -> float:
    """beta of the next update: halved if d < d_targ / 1.5, doubled if d > 1.5 d_targ, section 4. [] each -> []"""
    return coef / 2 if kl < target / 1.5 else coef * 2 if kl > target * 1.5 else coef


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """KL(old || new) by E[(r - 1) - log r], unbiased and never negative (Schulman 2020). log_ratio [B] -> []

    Its gradient E[(r - 1) grad log pi] is unbiased, too, since E[r grad log pi] is 0 over the old policy's actions.
    """
    return (log_ratio.exp() - 1 - log_ratio).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class Lesson(NamedTuple):
    """The result of several passes over a rollout."""

    metrics: dict[str, list[Tensor]]
    """Log name -> value of each gradient step; ``approx_kl`` of the last pass only."""
    passes: int
    """Number of passes begun."""
    too_far: bool
    """Whether early stopping skipped the last gradient step and the remaining ones."""


class PPOLearner(OnPolicyLearner):
    """A stochastic actor with a value function, and one optimizer."""

    optimized = ("policy",)
    policy: ActorCriticPolicy
    clip_range: Tunable[Tensor]
    clip_range_vf: Tunable[Tensor | None]
    dual_clip: Tunable[Tensor | None]
    ent_coef: Tunable[Tensor]
    entropy_index: Tunable[float]
    vf_coef: Tunable[Tensor]
    max_grad_norm: Tunable[Tensor | None]
    normalize_advantage: Tunable[bool]
    target_kl: Tunable[float | None]
    kl_coef: Tunable[Tensor | None]

    def learn_from(self, passes: Iterable[Iterable[RolloutSamples | RolloutRows]]) -> Lesson:
        """Make a gradient step on each minibatch of several passes over a rollout, until one is skipped.

        Args:
            passes: each an iterable of equally many minibatches; passes that are not reached are not drawn.
        """
        each = [list(passes)] if self.target_kl is None else ([one] for one in passes)  # without it no step is skipped
        metrics: dict[str, list[Tensor]] = {}
        too_far, begun = False, 0
        for some in each:
            begun += len(some)
            metrics.get("approx_kl", []).clear()
            for update in self.learn_all(chain.from_iterable(some)):
                for name, value in update.metrics.items():
                    metrics.setdefault(name, []).append(value)
            if too_far := update.skipped is not None and bool(update.skipped):
                break
        steps = len(metrics["approx_kl"])
        metrics["approx_kl"] = metrics["approx_kl"][steps - steps // len(some) :]
        return Lesson(metrics, begun, too_far)

    def gradient_step(self, batch: RolloutSamples) -> Update:
        """Makes a gradient step on the objective, unless the KL divergence exceeds 1.5 ``target_kl``."""
        values, log_prob, entropy = self.evaluated(batch)
        objective = self.objective(batch, values.flatten(), log_prob, entropy)
        with torch.no_grad():
            kl = self.divergence(batch, log_prob - batch.old_log_prob)
        if self.target_kl is not None or self.kl_coef is not None:
            (kl,) = self.averaged([kl])  # learners stop together, and weight the divergence equally
        too_far = None if self.target_kl is None else kl > 1.5 * self.target_kl
        self.minimise("policy", objective.loss, self.max_grad_norm, unless=too_far)
        return Update({"loss": objective.loss.detach(), "approx_kl": kl, **objective.metrics}, skipped=too_far)

    def objective(self, batch: RolloutSamples, values: Tensor, log_prob: Tensor, entropy: Tensor | None) -> Objective:
        """Returns -(L^CLIP - c1 L^VF + c2 S), eq. 9. Under the current policy: values [B], log_prob [B] of the batch's
        actions, entropy [B]"""
        advantages = batch.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = self.normalized(advantages)
        log_ratio = log_prob - batch.old_log_prob
        if self.clip_range_vf is not None:
            values = clipped_values(values, batch.old_values, self.clip_range_vf)
        loss_pi = clipped_surrogate(log_ratio, advantages, self.clip_range, self.dual_clip)
        loss_v = value_loss(values, batch.returns)
        loss_s = entropy_loss(entropy, log_prob)
        with torch.no_grad():
            clipped = ((log_ratio.exp() - 1).abs() > self.clip_range).float().mean()
        metrics = {
            "policy_gradient_loss": loss_pi.detach(),
            "value_loss": loss_v.detach(),
            "entropy_loss": loss_s.detach(),
            "clip_fraction": clipped,
        }
        objective = Objective(loss_pi + self.vf_coef * loss_v + self.ent_coef * loss_s, metrics)
        if self.kl_coef is None:
            return objective
        return objective.plus(self.kl_coef * self.divergence(batch, log_ratio))

    def divergence(self, batch: RolloutSamples, log_ratio: Tensor) -> Tensor:
        """Returns the approximate KL divergence since the rollout, by log r [B] of the actions taken. -> []"""
        return approximate_kl(log_ratio)


# -- after each update -------------------------------------------------------------------------------------------------


def log_ranges(model: Any, outcome: Gained) -> None:
    """Log the weight of the KL penalty and the clipping ranges, if set."""
    values = {name: model.learner.tunables.get(name) for name in ("kl_coef", "clip_range", "clip_range_vf")}
    for name in [name for name, value in values.items() if value is not None]:
        model.logger.record(f"train/{name}", values[name])


def move_kl_coef(model: Any, outcome: Gained) -> None:
    """Adapt the weight of the KL penalty to ``kl_target``."""
    if model.kl_target is not None:
        kl = float(torch.stack(outcome.metrics["approx_kl"]).mean())
        model._put(kl_coef=next_kl_coef(model.kl_coef, kl, model.kl_target))
        model.learner.set(kl_coef=model.kl_coef)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class Epochs(Rollouts):
    """Makes ``n_epochs`` shuffled passes over each rollout."""

    watching: ClassVar = (log_ranges, move_kl_coef)
    reads_rows_alone: ClassVar = True

    def check(self) -> None:
        model = self.model
        enough = model.batch_size > 1 or not model.normalize_advantage
        require(enough, "batch_size", model.batch_size, "it must be greater than 1 to normalise advantages.")
        fix = "there is no weight that could move. Give kl_coef as well."
        require(model.kl_target is None or model.kl_coef is not None, "kl_target", model.kl_target, fix)

    def optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.Adam, {"eps": 1e-5})

    def updates_per_rollout(self, rows: int) -> int:
        return cast(int, self.model.n_epochs * -(-rows // self.model.batch_size))

    def lesson(self, minibatches: Minibatches) -> Gained:
        model, learner = self.model, cast(PPOLearner, self.model.learner)
        lesson = learner.learn_from(minibatches(model.batch_size) for _ in range(model.n_epochs))
        if lesson.too_far:
            model.logger.debug(
                f"Update ended in epoch {lesson.passes - 1}: the policy moved more than 1.5 * target_kl."
            )
        return Gained({**lesson.metrics, "loss": lesson.metrics["loss"][-1:]}, lesson.passes)


@dataclass(eq=False, repr=False)
class PPO(OnPolicyAlgorithm):
    """Proximal Policy Optimization: many small clipped steps on each rollout (arXiv:1707.06347)."""

    _: KW_ONLY
    batch_size: Count = 64
    """Rows of the rollout per minibatch."""
    n_epochs: Count = 10
    """Passes over each rollout."""
    clip_range: Scheduled[Positive | Schedule] = 0.2
    """Clipping range of the probability ratio around 1; a number or a schedule."""
    clip_range_vf: Scheduled[Positive | Schedule | None] = None
    """Clipping range of the change of values in one update, in units of return; ``None``: no clipping."""
    dual_clip: Annotated[float, Only("a number greater than 1", lambda c: c > 1)] | None = None
    """Bound of the clipped objective for negative advantages, as a multiple of the advantage (arXiv:1912.09729);
    ``None``: no bound."""
    target_kl: Positive | None = None
    """Stop an update early once the approximate KL divergence exceeds 1.5 times this; ``None``: no early stopping."""

    kl_coef: NonNegative | None = None
    """Weight of a penalty on the KL divergence from the policy that made the rollout, estimated from the actions taken
    (section 4); ``None``: no penalty."""
    kl_target: Positive | None = None
    """KL divergence per update that ``kl_coef`` is adapted to: it is halved after an update with a divergence below 2/3
    of this, and doubled above 3/2. ``None``: constant ``kl_coef``."""

    made_of: ClassVar[MadeOf] = {"rollouts": Epochs}
    learner_class: ClassVar[type[Learner]] = PPOLearner

    card: ClassVar[Card] = Card(
        idea="many small clipped steps on each rollout",
        learns_from="its own rollouts",
        search=tune.clipped_steps(tune.gsde()),
    )
