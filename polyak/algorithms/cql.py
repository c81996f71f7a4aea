"""Conservative Q-Learning (CQL).

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-Learning for Offline Reinforcement Learning", arXiv:2006.04779.
Equation numbers refer to it. SAC with critics that are penalised for high values of actions outside the data: CQL(H),
with the importance weights of appendix F.

Shapes: B batch rows, A action dimensions, K critics, N sampled actions in each state. Actions are in units of the
action space scaled to [-1, 1], and so are densities over them.
"""

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.sac import SAC, GaussianTemperature, SACLearner
from polyak.experience import Transition
from polyak.fields.actor_critic import SoftCritics
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.changing import FixedHyperparameterError
from polyak.hyperparameters.declaration import (
    Count,
    LearningRate,
    Natural,
    NonNegative,
    Positive,
    Scheduled,
    require,
)
from polyak.learning.learner import (
    Learner,
    LearnerRecipe,
    Metrics,
    Objective,
    OptimizerRecipe,
    Tunable,
    Update,
    set_rate,
)
from polyak.learning.part_rates import PartRates
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf

LARGEST_MULTIPLIER = 1e6
ROWS_IN_CACHE = 900
"""Pairs of states and actions that the critics evaluate at once: activations of a layer take about a megabyte."""

# -- losses ------------------------------------------------------------------------------------------------------------


def conservative_gap(q: Tensor, tried: Tensor, log_densities: Tensor, temperature: Tensor) -> Tensor:
    """T log sum_j exp(Q_k(s, a_j) / T) / mu_j(a_j|s) - Q_k(s, a), eq. 4 and appendix F.

    Each action a_j was drawn from a density mu_j, so that the sum is N times an estimate of the integral of exp(Q / T)
    over all actions; the factor N, which does not change gradients, is kept, as in the authors' code.

    q [K, B] of the recorded action, tried [K, B, N], log_densities [B, N], temperature T [] -> [K, B]
    """
    return temperature * (tried / temperature - log_densities).logsumexp(2) - q


def excess(gap: Tensor, weights: Tensor, weight: Tensor, threshold: Tensor | float = 0.0) -> Tensor:
    """alpha E[gap_k] - tau, the bracket of eq. 30. gap [K, B], weights [B] of rows, alpha [], tau [] -> [K]"""
    return weight * (weights * gap).mean(1) - threshold


def penalty(excess: Tensor, multiplier: Tensor | float = 1.0) -> Tensor:
    """1/2 sum_k alpha' excess_k, eq. 4, or eq. 30 with a multiplier alpha'. excess [K], multiplier [] -> []

    The half matches the half of SAC's squared errors: the authors' code has neither, so that alpha has the same
    meaning.
    """
    return 0.5 * (multiplier * excess).sum()


def multiplier_loss(excess: Tensor, multiplier: Tensor) -> Tensor:
    """-alpha' mean_k excess_k: alpha' grows while gaps exceed the threshold, eq. 30. excess [K], multiplier [] -> []"""
    return -(multiplier * excess.detach()).mean()


def cloning_loss(log_prob: Tensor, recorded: Tensor, alpha: Tensor) -> Tensor:
    """E[alpha log pi(a'|s) - log pi(a|s)], the actor's initial loss in the authors' code.

    log_prob [B] of its own actions a', recorded [B] of the batch's actions a -> []
    """
    return (alpha * log_prob - recorded).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """Actions sampled in each state."""

    actions: Tensor
    """[B, N, A]"""
    log_densities: Tensor
    """[B, N]"""

    def first(self) -> tuple[Tensor, Tensor]:
        """Returns one action of each state and its log-density: [B, A] and [B]"""
        return self.actions[:, 0], self.log_densities[:, 0]


class CQLLearner(SACLearner):
    """SAC's gradient steps with conservative critics.

    Every network evaluates a state once, however many actions are sampled in it, and samples are shared: the first one
    at s also serves the actor's loss, and the first one at s' the target.
    """

    actor_learning_rate: Tunable[Tensor]
    conservative_weight: Tunable[Tensor]
    n_action_samples: Tunable[int]
    softmax_temperature: Tunable[Tensor]
    lagrange_threshold: Tunable[Tensor | None]
    soft_q_backup: Tunable[bool]
    max_q_backup: Tunable[bool]
    bc_steps: Tunable[int]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.learn_multiplier = recipe.values["lagrange_threshold"] is not None
        if self.learn_multiplier:
            self.log_multiplier = nn.Parameter(torch.zeros(1))
            self.add_optimizer("multiplier", [self.log_multiplier], OptimizerRecipe(), recipe.lr)
        self.set()

    def set(self, **values: float) -> None:
        super().set(**values)
        for name in ("actor", "ent_coef"):
            if name in self.optimizers:
                set_rate(self.optimizers[name], self.tunables["actor_learning_rate"])

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of critics, actor and temperature; for the first ``bc_steps`` the actor clones the
        data."""
        self.begin()
        moves, clones = self.steps % self.target_update_interval == 0, self.steps <= self.bc_steps
        update: Update = self.run(self.gradient_step, batch, moves, clones)
        return update

    def gradient_step(self, batch: Transition, update_target: bool, clones: bool = False) -> Update:
        """Makes the gradient steps of algorithm 1."""
        alpha = self.temperature()
        policy = self.policy.actor.get_distribution(batch.observations)
        here = Drawn(*policy.sample_many_with_log_prob(self.n_action_samples))
        update = self.improve_conservatively(batch, here, alpha)
        if clones:
            metrics = self.clone(policy.log_prob(batch.actions.flatten(1)), here.log_densities[:, 0], alpha)
        else:
            metrics = self.improve_actor(batch, *here.first(), alpha)
        if update_target:
            polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        return update._replace(metrics={**update.metrics, **metrics})

    def improve_conservatively(self, batch: Transition, here: Drawn, alpha: Tensor) -> Update:
        """Makes the critics' step of eq. 4, or of eq. 30 and its multiplier. ``here``: actions sampled at s"""
        with torch.no_grad():
            policy = self.policy.actor.get_distribution(batch.next_observations)
            there = Drawn(*policy.sample_many_with_log_prob(self.n_action_samples))
            target = self.backed_up(batch, there, alpha)
            tried = with_uniform(here, there)
        n = pieces(batch, tried)
        done: list[Objective] = []

        def losses() -> Iterator[Tensor]:
            for rows in zip(batch.split(n), split(tried, n), target.chunk(n), strict=True):
                done.append(self.conservative_objective(*rows))
                yield done[-1].loss / n

        self.minimise("critic", losses())
        metrics = {name: torch.stack([each.metrics[name] for each in done]).mean() for name in done[0].metrics}
        loss = torch.stack([each.loss.detach() for each in done]).mean()
        if self.learn_multiplier:
            self.minimise("multiplier", multiplier_loss(metrics["excess"], self.multiplier()))
        errors = [each.td_error for each in done if each.td_error is not None]
        return Update({"critic_loss": loss, **metrics}, torch.cat(errors) if errors else None)

    def conservative_objective(self, batch: Transition, tried: Drawn, target: Tensor) -> Objective:
        """Returns the critics' loss, with the penalty. ``tried``: sampled actions; target [B]"""
        actions = torch.cat([batch.actions.flatten(1).unsqueeze(1), tried.actions], 1)
        q = self.policy.critic.q_values_of_many(batch.observations, actions)
        gap = conservative_gap(q[..., 0], q[..., 1:], tried.log_densities, self.softmax_temperature)
        above = excess(gap, batch.weights, self.conservative_weight, self.threshold)
        return self.critic_objective(batch, q[..., 0], target).plus(
            penalty(above, self.multiplier().detach()),
            conservative_gap=gap.detach().mean(),
            excess=above.detach().mean(),
            multiplier=self.multiplier().detach().mean(),
        )

    def backed_up(self, batch: Transition, there: Drawn, alpha: Tensor) -> Tensor:
        """Returns the target Q-values of eq. 3, or of the options that replace it. ``there``: actions sampled at s' ->
        [B]"""
        critics, actions = self.policy.critic_target, there.actions
        if self.max_q_backup:
            value = critics.q_values_of_many(batch.next_observations, actions).amax(2).amin(0)
        else:
            value = critics.q_values(batch.next_observations, actions[:, 0]).amin(0)
            if self.soft_q_backup:
                value = value - alpha * there.log_densities[:, 0]
        return batch.rewards + batch.discounts * value

    def clone(self, recorded: Tensor, log_prob: Tensor, alpha: Tensor) -> Metrics:
        """Make a step of the actor towards the batch's actions, and one of the temperature. recorded and log_prob [B]"""
        loss = cloning_loss(log_prob, recorded, alpha)
        self.minimise("actor", loss)
        return {"actor_loss": loss.detach(), **self.improve_temperature(log_prob, alpha)}

    def multiplier(self) -> Tensor:
        """Returns the present alpha': [1] if it is learned, otherwise []."""
        if not self.learn_multiplier:
            return torch.ones_like(self.conservative_weight)
        return self.log_multiplier.exp().clamp(max=LARGEST_MULTIPLIER)

    @property
    def threshold(self) -> Tensor | float:
        """The threshold tau; 0 without a multiplier."""
        return 0.0 if self.lagrange_threshold is None else self.lagrange_threshold


def with_uniform(here: Drawn, there: Drawn) -> Drawn:
    """Returns the actions sampled at s and s' and as many uniform ones, all to evaluate at s: [B, N / 3, A] each -> [B,
    N, A]"""
    uniform = 2 * torch.rand_like(here.actions) - 1
    log_density = torch.full_like(here.log_densities, -uniform.shape[2] * math.log(2))
    return Drawn(
        torch.cat([here.actions, there.actions, uniform], 1),
        torch.cat([here.log_densities, there.log_densities, log_density], 1),
    )


def pieces(batch: Transition, tried: Drawn) -> int:
    """Returns the number of pieces to cut a minibatch into, so that each stays in the cache: a divisor of B."""
    rows = len(batch.rewards)
    most = max(rows * tried.actions.shape[1] // ROWS_IN_CACHE, 1)
    if batch.rewards.device.type != "cpu" or not isinstance(batch.observations, Tensor | dict):
        return 1
    return max(n for n in range(1, min(most, rows) + 1) if rows % n == 0)


def split(tried: Drawn, parts: int) -> Iterator[Drawn]:
    """Yields slices of equal size, like :meth:`Transition.split`."""
    return map(Drawn, tried.actions.chunk(parts), tried.log_densities.chunk(parts))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class CQL(SoftCritics, OfflineAlgorithm, OffPolicyAlgorithm):
    """Conservative Q-Learning: SAC with critics that penalise high values of actions outside the data
    (arXiv:2006.04779)."""

    _: KW_ONLY
    actor_learning_rate: Scheduled[LearningRate] = 1e-4
    """Learning rate of actor and temperature; ``learning_rate`` is that of critics and multiplier."""
    conservative_weight: NonNegative = 5.0
    """Weight of the gap between sampled and recorded actions, relative to squared TD errors."""
    n_action_samples: Count = 10
    """Actions sampled in each state from each of three sources: the policy, the policy at the next state, and
    uniformly."""
    softmax_temperature: Positive = 1.0
    """Temperature of the log-sum-exp over those actions."""
    lagrange_threshold: NonNegative | None = None
    """Allowed gap, times ``conservative_weight``: a multiplier of the penalty is learned, which grows above it and
    shrinks below it. ``None``: no multiplier."""
    soft_q_backup: bool = False
    """Include the policy's entropy in the target, like SAC. The authors do not."""
    max_q_backup: bool = False
    """Take the best of ``n_action_samples`` next actions in the target, as the authors do in AntMaze."""
    bc_steps: Natural = 0
    """Gradient steps during which the actor clones the recorded actions while the critics are trained. The authors'
    runs of a million steps begin with 40,000."""
    learning_rates: PartRates | None = None
    """Learning rates of single parts that override both: ``"actor"``, ``"critic"``, ``"ent_coef"``."""

    made_of: ClassVar[MadeOf] = {"temperature": GaussianTemperature}
    learner_class: ClassVar[type[Learner]] = CQLLearner
    policies: ClassVar = SAC.policies

    def _adopt(self, name: str, before: Any) -> None:
        if name == "lagrange_threshold" and (before is None) != (self.lagrange_threshold is None):
            raise FixedHyperparameterError(
                f"{name}={self.lagrange_threshold} cannot be set on a model that is built with {before}: whether there "
                "is a multiplier that learns is decided once. Make a new model."
            )
        super()._adopt(name, before)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = "the best next action is taken for its value alone. Use soft_q_backup=False."
        require(not (self.soft_q_backup and self.max_q_backup), "max_q_backup", self.max_q_backup, fix)

    card: ClassVar[Card] = Card(
        idea="SAC whose critics think little of what the data do not show",
        learns_from="a dataset",
        search=Search(
            tune.from_data(),
            tune.log_uniform("actor_learning_rate", 1e-5, 1e-3),
            tune.log_uniform("conservative_weight", 0.1, 20.0),
        ),
    )
