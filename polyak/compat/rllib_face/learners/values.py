"""Learners from replayed steps: DQN and SAC.

Shapes: B rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithms.dqn import DQNLearner, taken
from polyak.algorithms.sac import SACLearner
from polyak.compat.rllib_face.bases import BeforeCQL, BeforeDQN, BeforeIQL, BeforeSAC
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.batches import (
    AddNextObservationsFromEpisodesToTrainBatch,
    AddObservationsFromEpisodesToBatch,
)
from polyak.compat.rllib_face.connectors.learning import episodes_of
from polyak.compat.rllib_face.learners.base import OPTIMIZERS, Batch, Gradients, TorchLearner
from polyak.compat.rllib_face.models.default_modules import view_of
from polyak.compat.rllib_face.models.multi import MultiRLModule
from polyak.compat.rllib_face.models.values import ReadsOutputs
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Objective, Update
from polyak.ops.updates import polyak_update

_OF_SAC = "SAC has an optimizer for each of its losses. Set actor_lr, critic_lr and alpha_lr"
WEIGHTS, DISCOUNTS = "weights", "discounts"


class ReportsValues(BeforeDQN):
    """Before a learner of DQN: the values of the actions taken are reported, and how far off they are."""

    def objective(self, batch: Any, q: Tensor, target: Tensor) -> Objective:
        found = super().objective(batch, q, target)
        with torch.no_grad():
            chosen = taken(self.means(q), batch.actions.long())
        assert found.td_error is not None
        reported = {**of_values(chosen), "qf_loss": found.loss.detach(), "td_error_mean": found.td_error.mean()}
        return found._replace(metrics={**found.metrics, **reported})

    def means(self, q: Tensor) -> Tensor:
        """Returns action values [B, A] of predictions [B, ..., A]."""
        found: Tensor = q if q.ndim == 2 else self.policy.q_net.mean(q)
        return found


def of_values(q: Tensor) -> dict[str, Tensor]:
    """Returns the reported metrics of action values [B]."""
    return {"qf_mean": q.mean(), "qf_max": q.max(), "qf_min": q.min()}


class Replayed(dict[str, Any]):
    """Columns of replayed steps."""

    def __missing__(self, name: str) -> Any:
        why = ": replay does not keep how an episode was cut short" if name == Columns.TRUNCATEDS else ""
        raise KeyError(f"{name!r}{why}. There are {sorted(self)}.")


class DQNTorchLearner(TorchLearner, ReadsOutputs, ReportsValues, DQNLearner):
    """DQN's learner. Columns of a minibatch are observations, actions, rewards (summed over ``n_step`` steps),
    ``new_obs``, ``terminateds``, importance ``weights``, ``n_step``, and ``discounts`` of the values of ``new_obs``: 0
    where an episode has ended. The gradient of a dueling module lacks the factor of polyak's own heads."""

    policy: Any

    def build(self) -> None:
        super().build()
        first, further = AddObservationsFromEpisodesToBatch, AddNextObservationsFromEpisodesToTrainBatch()
        self._learner_connector.insert_after(first, further)

    def _why_plainly(self) -> str | None:
        why = super()._why_plainly()
        fix = "{} reads neither sequences nor atoms. Leave use_lstm out, and set num_atoms=1."
        plain = self.policy.recurrence is None and not self.policy.distributional
        require(why is None or plain, "learner_class", type(self), fix.format(why))
        return why

    def gradient_step(self, batch: Any) -> Update:
        if not self.plainly:
            return super().gradient_step(batch)
        try:
            with self.policy.drawing():
                return self.own_step(self.batches_of(batch), batch)
        finally:
            self.outputs = {}  # a graph that could not be copied

    def batch_of(self, batch: Any) -> Batch:
        return replayed(self.policy.columns_of(batch), batch, self.config)

    def batches_of(self, batch: Any) -> dict[str, Batch]:
        columns = self.batch_of(batch)
        if not self._learner_connector.own:
            return {DEFAULT_MODULE_ID: columns}
        made = self.passed(episodes_of(columns))
        return {**made, DEFAULT_MODULE_ID: {**columns, **made[DEFAULT_MODULE_ID]}}

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        self._check_agents(module_id)
        self.outputs = fwd_out
        sample = self._sample._replace(
            rewards=batch[Columns.REWARDS], weights=batch[WEIGHTS], discounts=batch[DISCOUNTS]
        )
        objective = self.objective(sample, self.predicted(sample), self.td_target(sample))
        self._noted |= dict(objective.metrics)
        if objective.td_error is not None:
            self._noted["td_error"] = objective.td_error
        return objective.loss


def replayed(columns: Batch, batch: Any, config: Any) -> Replayed:
    """Adds the columns of all replaying learners to those of replayed steps.

    Args:
        columns: observations, actions and rewards.
        batch: polyak's minibatch.
        config: the algorithm's config, with the number of rewards that are summed.
    """
    most = config.n_step if isinstance(config.n_step, int) else max(config.n_step)
    steps = torch.full_like(batch.discounts, most)
    if 0 < config.gamma < 1:  # fewer where an episode was cut short
        steps = torch.where(batch.discounts > 0, (batch.discounts.log() / math.log(config.gamma)).round(), steps)
    own = {
        Columns.TERMINATEDS: batch.discounts == 0,
        WEIGHTS: batch.weights,
        DISCOUNTS: batch.discounts,
        "n_step": steps,
    }
    return Replayed({**columns, **own})


class ReportsCritics(BeforeSAC):
    """A mixin for SAC's learner: reports the critics' values and losses."""

    def critic_objective(self, batch: Any, q: Tensor, target: Tensor) -> Objective:
        found = super().critic_objective(batch, q, target)
        with torch.no_grad():
            losses = 0.5 * (batch.weights * (q - target) ** 2).mean(1)
        own = {"critic_loss": losses[0], **({"qf_twin_loss": losses[1]} if len(losses) > 1 else {})}
        own |= {**of_values(q[0].detach()), "td_error_mean": (q[0] - target).detach().abs().mean()}
        return found._replace(metrics={**found.metrics, **own})

    def temperature_objective(self, log_prob: Tensor) -> Objective:
        found = super().temperature_objective(log_prob)
        log_alpha = self.log_ent_coef.detach().mean()
        own = {"log_alpha_value": log_alpha, "target_entropy": torch.full_like(log_alpha, float(self.target_entropy))}
        return found._replace(metrics={**found.metrics, **own})


class ReportsConservativeCritics(ReportsCritics, BeforeCQL):
    """A mixin for CQL's learner: the loss of each critic includes its share of the penalty."""

    def conservative_objective(self, batch: Any, tried: Any, target: Tensor) -> Objective:
        found = super().conservative_objective(batch, tried, target)
        known = found.metrics
        share = 0.5 * known["multiplier"] * known["excess"]
        own = {name: known[name] + share for name in ("critic_loss", "qf_twin_loss") if name in known}
        return found._replace(metrics={**known, **own})


class ReportsExpectiles(BeforeIQL):
    """A mixin for IQL's learner: reports the loss of each critic, its share of their common loss."""

    def critic_objective(self, batch: Any, q: Tensor, target: Tensor) -> Objective:
        found = super().critic_objective(batch, q, target)
        losses = (batch.weights * (q - target).detach() ** 2).mean(1) / len(q)
        own = dict(zip(("critic_loss", "qf_twin_loss"), losses, strict=False))
        return found._replace(metrics={**found.metrics, **own})


class SACTorchLearner(TorchLearner, ReportsCritics, SACLearner):
    """SAC's learner. Columns are those of :class:`DQNTorchLearner`. Each optimizer descends its own loss, as in RLlib,
    so that terms added to the sum that :meth:`compute_loss_for_module` returns have no effect; a program may read it
    and log."""

    reasons: ClassVar[Mapping[str, str]] = dict.fromkeys(OPTIMIZERS, _OF_SAC)
    policy: Any

    @property
    def module(self) -> MultiRLModule:
        """A view of the networks."""
        return MultiRLModule({DEFAULT_MODULE_ID: view_of(self.policy, self.policy.observation_space, turned=False)})

    @property
    def names_optimizers(self) -> bool:
        return True

    def get_optimizers_for_module(self, module_id: str = DEFAULT_MODULE_ID) -> list[tuple[str, Any]]:
        """Returns the optimizers of the policy, of the critics, which share one, and of the temperature."""
        names = {"actor": ["policy"], "critic": ["qf", "qf_twin"][: self.policy.n_critics]}
        return [(n, one) for name, one in self.optimizers.items() for n in names.get(name, ["alpha"])]

    def gradient_step(self, batch: Any, update_target: bool) -> Update:
        if not self.plainly:
            return super().gradient_step(batch, update_target)
        found = self.own_step({DEFAULT_MODULE_ID: self.batch_of(batch)}, batch)
        if update_target:
            polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        return found

    def batch_of(self, batch: Any) -> Batch:
        seen = {Columns.OBS: batch.observations, Columns.NEXT_OBS: batch.next_observations}
        columns = {**seen, Columns.ACTIONS: batch.actions, Columns.REWARDS: batch.rewards}
        return replayed(columns, batch, self.config)

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        names = {"rewards": Columns.REWARDS, "weights": WEIGHTS, "discounts": DISCOUNTS}
        sample = self._sample._replace(**{name: batch[column] for name, column in names.items()})
        alpha = self.temperature()
        actions, log_prob = self.policy.actor.action_log_prob(sample.observations)
        target = self.td_target(sample, alpha)
        critic = self.critic_objective(sample, self.estimates(sample), target)
        actor = self.actor_objective(sample, actions, log_prob, self.q_of_policy(sample, actions), alpha)
        self._losses = {"critic": critic.loss, "actor": actor.loss}
        self._noted |= {"critic_loss": critic.loss.detach(), **critic.metrics, "ent_coef": alpha.mean()}
        self._noted |= {"actor_loss": actor.loss.detach(), **actor.metrics}
        if critic.td_error is not None:
            self._noted["td_error"] = critic.td_error
        if self.learn_alpha:
            temperature = self.temperature_objective(log_prob)
            self._losses["ent_coef"] = temperature.loss
            self._noted |= {"ent_coef_loss": temperature.loss.detach(), **temperature.metrics}
        return torch.stack([loss.reshape(()) for loss in self._losses.values()]).sum()

    def compute_gradients(self, loss_per_module: Mapping[str, Tensor], **kwargs: Any) -> Gradients:
        """Returns the gradients of each optimizer's own loss, by its parameters."""
        found: Gradients = {}
        for name, loss in self._losses.items():
            params = [p for group in self.optimizers[name].param_groups for p in group["params"]]
            grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
            found |= {p: grad for p, grad in zip(params, grads, strict=True) if grad is not None}
        self._losses = {}
        return found
