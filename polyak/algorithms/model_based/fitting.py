"""The fit of a :class:`~polyak.algorithms.model_based.dynamics.DynamicsModel`: maximum likelihood, with early stopping.

Chua et al. 2018, arXiv:1805.12114 (PETS), and Janner et al. 2019, arXiv:1906.08253 (MBPO), whose early stopping on a
holdout set and elites are used. Members are trained on the same rows: they differ by their initial weights and their
minibatches, which are drawn with replacement.

Shapes: K members, B rows, D = S + 1 outputs.
"""

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from polyak.algorithms.model_based.dynamics import DynamicsModel, Outcomes
from polyak.experience import ReplayBuffer, Transition
from polyak.experience.base_buffer import Normalizer
from polyak.experience.batch import TensorObs
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, NonNegative, Only
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, LearnerRecipe, Objective, OptimizerRecipe, Tunable, Update
from polyak.nn.distributions.gaussian import HALF_LOG_2PI

Share = Annotated[float, Only("a number between 0 and 1", lambda x: 0 < x < 1)]
LEAST_GAIN = 0.01
"""Decrease of a member's holdout loss, in nats per row, that counts as progress."""
MOST_HELD = 5_000
"""Largest number of rows in the holdout set."""

# -- losses ------------------------------------------------------------------------------------------------------------


def likelihood_loss(mean: Tensor, log_var: Tensor, target: Tensor) -> Tensor:
    """-E[log N(target; mean, exp(log_var))] of each member, section 4 of PETS. All [K, B, D] -> [K]"""
    return (0.5 * ((target - mean) ** 2 * (-log_var).exp() + log_var) + HALF_LOG_2PI).sum(-1).mean(-1)


def termination_loss(logit: Tensor, terminated: Tensor) -> Tensor:
    """-E[log p(terminated)] of each member, the Bernoulli log-likelihood. logit, terminated [K, B] -> [K]"""
    return F.binary_cross_entropy_with_logits(logit, terminated, reduction="none").mean(-1)


def bounds_loss(least: Tensor, most: Tensor) -> Tensor:
    """sum(most - least), which tightens the bounds of log-variances, appendix A.1 of PETS. [K, 1, D] -> []"""
    return (most - least).sum()


# -- rows --------------------------------------------------------------------------------------------------------------


def rows_of(
    buffers: Iterable[ReplayBuffer | None], device: torch.device, normalizer: Normalizer | None = None
) -> Transition:
    """Returns all steps in replay buffers as one batch [B, ...], with discounts 0 at terminations and 1 elsewhere.

    Args:
        buffers: the replay buffers; ``None`` is skipped.
        device: of the batch.
        normalizer: of observations and rewards.
    """
    kept = [buffer.contents() for buffer in buffers if buffer is not None and buffer.size() > 0]

    def column(name: str) -> np.ndarray:
        return np.concatenate(
            [np.reshape(rows[name], (rows[name].shape[0] * rows[name].shape[1], -1)) for rows in kept]
        )

    observations, then, rewards = column("observations"), column("next_observations"), column("rewards")[:, 0]
    if normalizer is not None:
        observations, then = (np.asarray(normalizer.normalize_obs(rows)) for rows in (observations, then))
        rewards = normalizer.normalize_reward(rewards)
    alive = 1 - (column("dones") * (1 - column("timeouts")))[:, 0]
    columns = observations, column("actions"), rewards, then, alive, np.ones_like(alive)
    found: list[Any] = [torch.as_tensor(rows, dtype=torch.float32, device=device) for rows in columns]
    return Transition(*found)


def _flat(observations: TensorObs) -> Tensor:
    assert isinstance(observations, Tensor)  # models take vectors
    return observations


def taken(rows: Transition, index: Tensor) -> Transition:
    """Returns rows [R, ...] by indices of any shape [...] -> [..., ...]"""
    now, then = _flat(rows.observations), _flat(rows.next_observations)
    columns = now, rows.actions, rows.rewards, then, rows.discounts, rows.weights
    chosen: list[Any] = [column[index] for column in columns]
    return Transition(*chosen)


def model_optimizer() -> OptimizerRecipe:
    """Returns Adam with a weight decay similar to the authors'."""
    return OptimizerRecipe(torch.optim.Adam, {"weight_decay": 5e-5})


# -- the learner -------------------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """The result of a fit."""

    steps: int
    """Gradient steps made."""
    metrics: dict[str, list[Tensor]]
    """Log name -> means over members, per gradient step or once."""


class ModelLearner(Learner):
    """Fits a dynamics model: the policy's attribute ``model``, or the policy itself."""

    holdout: Tunable[float]
    patience: Tunable[int]
    bounds_weight: Tunable[Tensor]
    steps_are_shared = False

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.add_optimizer("model", self.model, recipe.make_optimizer, recipe.lr)

    @property
    def model(self) -> DynamicsModel:
        """The dynamics model."""
        return self.policy if isinstance(self.policy, DynamicsModel) else self.policy.model  # type: ignore[return-value]

    def gradient_step(self, batch: Transition) -> Update:
        """Makes a gradient step on the loss of all members, which share no parameters."""
        objective = self.model_objective(batch)
        self.minimise("model", objective.loss)
        return Update({"model_loss": objective.loss.detach() / self.model.n_members, **objective.metrics})

    def model_objective(self, batch: Transition) -> Objective:
        """Returns the model's loss, summed over members. Rows [K, B, ...], or [B, ...] shared by all"""
        model = self.model
        return Objective(self.losses(batch).sum()).plus(
            self.bounds_weight * bounds_loss(model.least_log_var, model.most_log_var)
        )

    def losses(self, batch: Transition) -> Tensor:
        """Returns negative log-likelihoods in nats per row: [K]. Rows [K, B, ...], or [B, ...] shared by all"""
        model = self.model
        now, then = _flat(batch.observations), _flat(batch.next_observations)
        rows = [now, batch.actions, batch.rewards, then, batch.discounts]
        if batch.rewards.ndim == 1:
            rows = [column.expand(model.n_members, *column.shape) for column in rows]
        observations, actions, rewards, next_observations, alive = rows
        mean, log_var, logit = model(observations, actions)
        target = model.targets(observations, rewards, next_observations)
        return likelihood_loss(mean, log_var, target) + termination_loss(logit, (alive == 0).to(logit))

    def fit(self, rows: Transition, most: int, batch_size: int) -> Fit:
        """Fit all members to rows, with a holdout set.

        After each pass over the training rows the holdout losses are computed. A member ends with the weights of its
        smallest holdout loss; the fit ends when no member has made progress for ``patience`` passes.

        Args:
            rows: [R, ...], at least 2.
            most: largest number of gradient steps.
            batch_size: rows per minibatch of each member.
        """
        model, n, device = self.model, len(rows.rewards), rows.rewards.device
        n_held = min(max(1, int(self.holdout * n)), MOST_HELD)
        order = torch.randperm(n, device=device)
        held, kept = taken(rows, order[:n_held]), taken(rows, order[n_held:])
        now, then = _flat(kept.observations), _flat(kept.next_observations)
        model.standardise(now, kept.actions, kept.rewards, then, kept.discounts == 0)
        epoch, waited, steps = math.ceil((n - n_held) / batch_size), 0, 0
        best, weights = self._held_losses(held), [p.detach().clone() for p in model.parameters()]
        metrics: dict[str, list[Tensor]] = {}
        while steps < most and waited < self.patience:
            for _ in range(min(epoch, most - steps)):
                index = torch.randint(n - n_held, (model.n_members, batch_size), device=device)
                for name, value in self.learn(taken(kept, index)).metrics.items():
                    metrics.setdefault(name, []).append(value)
                steps += 1
            losses = self._held_losses(held)
            better = losses < best - LEAST_GAIN
            waited = 0 if bool(better.any()) else waited + 1
            best = torch.where(better, losses, best)
            for kept_weight, weight in zip(weights, model.parameters(), strict=True):
                kept_weight[better] = weight.detach()[better]
        with torch.no_grad():
            for kept_weight, weight in zip(weights, model.parameters(), strict=True):
                weight.copy_(kept_weight)
        model.elites.copy_(best.topk(model.n_elites, largest=False).indices)
        return Fit(steps, {**metrics, "model_holdout_loss": [best.mean()]})

    @torch.no_grad()
    def _held_losses(self, held: Transition) -> Tensor:
        return self.losses(held)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class FitsModel:
    """Fields of algorithms that fit a model to all of their experience, which is in main memory."""

    _: KW_ONLY
    holdout: Share = 0.2
    """Share of the experience in the holdout set, which selects weights and elites; at most 5,000 steps."""
    patience: Count = 5
    """Passes over the experience without progress on the holdout set after which a fit ends."""
    bounds_weight: NonNegative = 0.01
    """Weight of the distance between the learned bounds of log-variances in the model's loss."""
    reward_function: WithNetworks[Outcomes | None] = None
    """Function that returns rewards [B] from tensors of observations, actions in the environment's units and next
    observations [B, ...]; ``None``: rewards are learned."""
    termination_function: WithNetworks[Outcomes | None] = None
    """Function of the same tensors that returns whether the next states are terminal, [B] bool; ``None``: terminations
    are learned, and occur if their probability exceeds 1/2."""

    prioritized: Settled[bool | dict[str, Any]] = False
    n_replay_shards: Settled[int] = 0
