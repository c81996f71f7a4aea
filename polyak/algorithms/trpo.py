"""Trust Region Policy Optimization (TRPO).

Schulman et al. 2015, "Trust Region Policy Optimization", arXiv:1502.05477. Equations and appendices refer to it.

Shapes: B rows of a rollout, P parameters of the actor.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.algorithms.ppo import value_loss
from polyak.experience import RolloutSamples
from polyak.experience.batch import RolloutRows, gathered
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.declaration import Count, LearningRate, NonNegative, Only, Positive
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, LearnerRecipe, Metrics, OptimizerRecipe, Tunable, Update
from polyak.learning.rollout_learner import OnPolicyLearner
from polyak.loops.updates import Gained, Minibatches
from polyak.nn.distributions.base import Distribution
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from polyak.parts.part import MadeOf
from polyak.parts.rollouts import Rollouts

# -- objective and direction -------------------------------------------------------------------------------------------


def surrogate(log_ratio: Tensor, advantages: Tensor) -> Tensor:
    """L = E[r A], eq. 14, which is maximised. log_ratio log r [B], advantages [B] -> []"""
    return (log_ratio.exp() * advantages).mean()


def surrogate_gain(change: Tensor, old_log_ratio: Tensor, advantages: Tensor) -> Tensor:
    """L(new) - L(old) = E[r_old (pi_new / pi_old - 1) A], without subtracting nearly equal numbers.

    change log pi_new - log pi_old [B], old_log_ratio log r_old [B], advantages [B] -> []
    """
    return (old_log_ratio.exp() * change.expm1() * advantages).mean()


def conjugate_gradient(
    product: Callable[[Tensor], Tensor],
    b: Tensor,
    max_steps: int,
    tolerance: Tensor | float,
    start: Tensor,
    definite: bool = True,
) -> Tensor:
    """Solves A x = b approximately, for a symmetric positive definite A given by its products (appendix C).

    Hestenes and Stiefel 1952. It ends early if |b - A x|^2 <= ``tolerance``, and at a direction without positive
    curvature, which only rounding or non-finite numbers can cause, unless A need not be ``definite``. product: A v of v
    [P] -> [P], b [P], start [P] -> [P]
    """
    x, residual = start, b - product(start)
    direction, square = residual, residual @ residual
    for _ in range(max_steps):
        if square <= tolerance:
            break
        image = product(direction)
        curvature = direction @ image
        if definite and not curvature > 0:
            break
        length = square / curvature
        x = x + length * direction
        residual = residual - length * image
        before, square = square, residual @ residual
        direction = residual + (square / before) * direction
    return x


# -- one trust-region step ---------------------------------------------------------------------------------------------

_TOLERANCE = 1e-10
"""Squared residual relative to the squared gradient: float32 can hardly do better."""
Parts = Mapping[str, Tensor]
"""A vector [P] in the form of the actor's parameters: their names in the policy -> tensors of their shapes."""


class Ascent(NamedTuple):
    """The surrogate objective and its gradient."""

    objective: Tensor
    """[] at the present parameters."""
    gradient: Parts
    """The gradient with respect to the actor: all trainable parameters that the action distribution depends on."""


class TRPOLearner(OnPolicyLearner):
    """A stochastic actor, updated within a trust region, and a value function with an optimizer."""

    policy: ActorCriticPolicy
    target_kl: Tunable[Tensor]
    cg_max_steps: Tunable[int]
    cg_damping: Tunable[Tensor]
    line_search_shrinking_factor: Tunable[Tensor]
    line_search_max_iter: Tunable[int]
    sub_sampling_factor: Tunable[int]
    normalize_advantage: Tunable[bool]

    optimized = ("policy",)
    steps_are_shared = False

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.is_recurrent = isinstance(self.policy, RecurrentActorCriticPolicy)
        if isinstance(self.policy, RecurrentActorCriticPolicy):
            self.policy.actor_memory.in_operations = True  # the Fisher product needs second derivatives

    def update(self, batch: RolloutSamples | RolloutRows) -> Update:
        """Makes a step of the actor and one of the critic, on the same rows."""
        return self.learn_from(batch, [[batch]])

    def learn_from(
        self, rollout: RolloutSamples | RolloutRows, passes: Iterable[Iterable[RolloutSamples | RolloutRows]]
    ) -> Update:
        """Makes a step of the actor on a whole rollout, then one of the critic on each minibatch of several passes.

        The critic's steps do not change parameters that the action distribution depends on, including features shared
        with the critic: a value step on those would move the policy out of the trust region. So the actor trains shared
        features, and the critic the layers after them.
        """
        self.steps += 1
        metrics, actor = self.improve(gathered(rollout))
        losses = [self.run(self.critic_step, batch, actor)["value_loss"] for batches in passes for batch in batches]
        return Update({**metrics, "value_loss": torch.stack(losses).mean()})

    def improve(self, batch: RolloutSamples) -> tuple[Metrics, tuple[str, ...]]:
        """Makes the longest step within the trust region along H^-1 g, appendix C, or none if no step improves the
        policy.

        Returns:
            metrics, and the names of the actor's parameters.
        """
        if self.normalize_advantage and len(batch.advantages) > 1:
            batch = batch._replace(advantages=self.normalized(batch.advantages))
        # Called at most a few times per rollout: compiling programs would take longer than they save.
        objective, gradient = self.eagerly(self.ascent, batch)
        none = torch.zeros_like(objective)
        metrics = {"policy_objective": objective, "kl_divergence_loss": none, "is_line_search_success": none}
        for step in self.steps_along(gradient, batch) if gradient else ():
            outcome = self.eagerly(self.outcome, (batch, step))
            if outcome["kl"] <= self.target_kl and outcome["gain"] > 0:
                with torch.no_grad():
                    torch._foreach_add_(self.parameters_of(step), list(step.values()))
                metrics = {
                    "policy_objective": outcome["objective"],
                    "kl_divergence_loss": outcome["kl"],
                    "is_line_search_success": torch.ones_like(objective),
                }
                break
        return metrics, tuple(gradient)

    def steps_along(self, gradient: Parts, batch: RolloutSamples) -> Iterable[Parts]:
        """Yields the steps of the line search: the first is as long as the quadratic model of the KL divergence allows,
        sqrt(2 delta / x^T H x) x, and each later one is shorter."""
        product, g = self.products(batch, gradient), _flat(gradient)
        x = conjugate_gradient(product, g, self.cg_max_steps, _TOLERANCE * (g @ g), self.first_guess(g))
        curvature = x @ product(x)
        if not curvature > 0:  # the gradient is 0: no action is better than others
            return
        step = (2 * self.target_kl / curvature).sqrt() * x
        for _ in range(self.line_search_max_iter):
            yield _parts(step, gradient)
            step = self.line_search_shrinking_factor * step

    def products(self, batch: RolloutSamples, gradient: Parts) -> Callable[[Tensor], Tensor]:
        """Returns the function v [P] -> (H + damping I) v [P]: a program, or one autograd graph for all products."""
        some = batch if self.sub_sampling_factor == 1 else self.sub_sample(batch)
        # A program of a recurrent policy's unrolled steps would take minutes to build.
        if self.engine is not None and self.engine.compiles and not self.is_recurrent:
            return lambda vector: _flat(self.run(self.fisher_product, (some, _parts(vector, gradient))))
        slope = self.eagerly(self.divergence_slope, (some, gradient))
        return lambda vector: _flat(self.eagerly(self.change_along, (slope, _parts(vector, gradient))))

    def sub_sample(self, batch: RolloutSamples) -> RolloutSamples:
        """Returns every ``sub_sampling_factor``-th row, or sequence of a recurrent policy."""
        rows = torch.arange(len(batch.advantages), device=batch.advantages.device)
        sequences = rows.view(-1, getattr(self.policy, "sequence_length", 1))
        return RolloutRows(batch, sequences[:: self.sub_sampling_factor].reshape(-1)).gathered()

    def first_guess(self, gradient: Tensor) -> Tensor:
        """Returns the initial guess of conjugate gradients. [P] -> [P]"""
        return torch.zeros_like(gradient)

    # -- functions of tensors ------------------------------------------------------------------------------------------

    def ascent(self, batch: RolloutSamples) -> Ascent:
        """Returns the surrogate objective and its gradient."""
        named = {name: p for name, p in self.policy.named_parameters() if p.requires_grad}
        log_prob = self.policy.log_prob_of(batch.actions, self.distribution(batch))
        objective = surrogate(log_prob - batch.old_log_prob, batch.advantages)
        if not objective.requires_grad:  # the actor is frozen
            return Ascent(objective, {})
        gradients = torch.autograd.grad(objective, list(named.values()), allow_unused=True)
        found = {name: g for name, g in zip(named, gradients, strict=True) if g is not None}
        return Ascent(objective.detach(), dict(zip(found, self.averaged(list(found.values())), strict=True)))

    def fisher_product(self, batch: tuple[RolloutSamples, Parts]) -> Parts:
        """Returns (H + damping I) v for v [P], where H is the Hessian of E[KL(old || new)] at the old policy: the
        Fisher information matrix (appendix C.1). It takes one gradient of the divergence, and one of its product with
        v."""
        rows, vector = batch
        return self.change_along((self.divergence_slope((rows, vector)), vector))

    def divergence_slope(self, batch: tuple[RolloutSamples, Parts]) -> tuple[Tensor, ...]:
        """Returns the differentiable gradient of E[KL(old || new)], which is 0, for the named parameters."""
        rows, names = batch
        with torch.no_grad():
            old = self.distribution(rows)
        return torch.autograd.grad(old.kl(self.distribution(rows)).mean(), self.parameters_of(names), create_graph=True)

    def change_along(self, batch: tuple[tuple[Tensor, ...], Parts]) -> Parts:
        """Returns the derivative of a gradient along v, plus the damping; the gradient's graph is kept."""
        slope, vector = batch
        along = torch.stack([(s * v).sum() for s, v in zip(slope, vector.values(), strict=True)]).sum()
        changes = torch.autograd.grad(along, self.parameters_of(vector), retain_graph=True, materialize_grads=True)
        damped = [p + self.cg_damping * v for p, v in zip(self.averaged(changes), vector.values(), strict=True)]
        return dict(zip(vector, damped, strict=True))

    @torch.no_grad()
    def outcome(self, batch: tuple[RolloutSamples, Parts]) -> Metrics:
        """Returns surrogate objective, gain and KL divergence after a step of the actor, then undoes the step."""
        rows, step = batch
        params = self.parameters_of(step)
        old = self.distribution(rows)
        old_log_prob = self.policy.log_prob_of(rows.actions, old)
        before = [p.clone() for p in params]
        try:
            for p, part in zip(params, step.values(), strict=True):
                p.add_(part)
            new = self.distribution(rows)
            log_prob, kl = self.policy.log_prob_of(rows.actions, new), self.divergence(old, new).mean()
        finally:
            for p, kept in zip(params, before, strict=True):
                p.copy_(kept)
        objective = surrogate(log_prob - rows.old_log_prob, rows.advantages)
        gain = surrogate_gain(log_prob - old_log_prob, old_log_prob - rows.old_log_prob, rows.advantages)
        kl, gain = self.averaged([kl, gain])  # all learners take the same step
        return {"objective": objective, "gain": gain, "kl": kl}

    def critic_step(self, batch: RolloutSamples, actor: tuple[str, ...]) -> Metrics:
        """Makes a step on the value loss in all parameters except ``actor``."""
        values = self.policy.predict_values(batch.observations, **self.recurrent_columns(batch))
        loss = value_loss(values.flatten(), batch.returns)
        self.minimise("policy", loss, sparing=self.parameters_of(actor))
        return {"value_loss": loss.detach()}

    # -- the actor -----------------------------------------------------------------------------------------------------

    def distribution(self, batch: RolloutSamples) -> Distribution:
        """Returns the action distribution of a batch's states, a copy that later calls of the policy do not change."""
        distribution = copy(self.policy.get_distribution(batch.observations, **self.recurrent_columns(batch)))
        masks = batch.extras.get("masks")
        return distribution if masks is None else distribution.masked(masks)

    def divergence(self, old: Distribution, new: Distribution) -> Tensor:
        """Returns the divergence that ``target_kl`` bounds, eq. 12: KL(old || new) [B]."""
        return old.kl(new)

    def parameters_of(self, names: Iterable[str]) -> list[Tensor]:
        """Returns the policy's parameters with these names."""
        named = dict(self.policy.named_parameters())
        return [named[name] for name in names]


def _flat(parts: Parts) -> Tensor:
    """Concatenates to a vector [P]."""
    return torch.cat([part.reshape(-1) for part in parts.values()])


def _parts(vector: Tensor, like: Parts) -> Parts:
    """Splits a vector [P] like ``like``; the inverse of :func:`_flat`."""
    pieces = vector.split([part.numel() for part in like.values()])
    return {name: piece.view(part.shape) for piece, (name, part) in zip(pieces, like.items(), strict=True)}


# -- hyper-parameters --------------------------------------------------------------------------------------------------

Shrinking = Annotated[float, Only("a number above 0 and below 1", lambda x: 0 < x < 1)]


class TrustRegion(Rollouts):
    """Makes a step of the actor, and passes of the value function, on each rollout."""

    def optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.Adam, {"eps": 1e-5})

    def updates_per_rollout(self, rows: int) -> int:
        return cast(int, self.model.n_critic_updates * -(-rows // self.model.batch_size))

    def lesson(self, minibatches: Minibatches) -> Gained:
        """Makes a step of the actor, and ``n_critic_updates`` shuffled passes of the value function."""
        rollout = next(minibatches(None))
        passes = (minibatches(self.model.batch_size) for _ in range(self.model.n_critic_updates))
        update = cast(TRPOLearner, self.model.learner).learn_from(rollout, passes)
        return Gained({name: [value] for name, value in update.metrics.items()}, 1)


@dataclass(eq=False, repr=False)
class TRPO(OnPolicyAlgorithm):
    """Trust Region Policy Optimization: one step on each rollout, as long as the KL divergence allows
    (arXiv:1502.05477).

    ``learning_rate`` and the optimizer are those of the value function: the actor's step length follows from
    ``target_kl``.
    """

    learning_rate: LearningRate = 1e-3
    """Learning rate of the value function: a number, or a function of the remaining progress, from 1 to 0."""
    _: KW_ONLY
    batch_size: Count = 128
    """Rows of the rollout per minibatch of the value function."""
    target_kl: Positive = 0.01
    """Delta: bound of the mean KL divergence of the new policy from the old in one step."""
    cg_max_steps: Count = 15
    """Largest number of conjugate gradient steps, which compute the direction."""
    cg_damping: NonNegative = 0.1
    """Added to the diagonal of the Fisher information matrix; larger values turn the step towards the gradient."""
    line_search_max_iter: Count = 10
    """Largest number of step lengths tried, until one improves the policy within ``target_kl``."""
    line_search_shrinking_factor: Shrinking = 0.8
    """Factor of the step length between two trials, in (0, 1)."""
    sub_sampling_factor: Count = 1
    """Use every n-th row only for the Fisher information matrix, which takes most of the time; the paper uses 10."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and standard deviation 1 within each rollout."""
    n_critic_updates: Count = 10
    """Passes of the value function over each rollout."""

    ent_coef: Settled[float] = 0.0
    entropy_index: Settled[float] = 1.0
    max_grad_norm: Settled[None] = None
    vf_coef: Settled[float] = 0.5
    made_of: ClassVar[MadeOf] = {"rollouts": TrustRegion}
    learner_class: ClassVar[type[Learner]] = TRPOLearner

    card: ClassVar[Card] = Card(
        idea="one natural-gradient step on each rollout, as long as a KL divergence allows",
        learns_from="its own rollouts",
        refuses=("n_learners",),
        search=tune.passes(
            1,
            tune.log_uniform("target_kl", 1e-3, 0.1),
            tune.whole("cg_max_steps", 5, 30),
            tune.whole("n_critic_updates", 5, 30),
            tune.gsde(),
        ),
    )
