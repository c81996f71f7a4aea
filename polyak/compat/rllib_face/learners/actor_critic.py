"""Learners of stochastic actors with state values: PPO, IMPALA and APPO.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyak.algorithms.appo import APPOLearner
from polyak.algorithms.impala import IMPALALearner
from polyak.algorithms.ppo import Lesson, PPOLearner
from polyak.arrays import mapped
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.batches import AddOneTsToEpisodesAndTruncate, GeneralAdvantageEstimation
from polyak.compat.rllib_face.learners.base import Batch, TorchLearner
from polyak.experience.batch import RolloutBufferSamples
from polyak.learning.learner import Objective, Update
from polyak.learning.vtrace_learner import Evaluated, Unroll, in_time, rows_of
from polyak.ops.returns import explained_variance_of_tensors


class Coefficient(NamedTuple):
    """A coefficient in the form that RLlib's losses read."""

    value: Tensor

    def get_current_value(self) -> Tensor:
        """[]"""
        return self.value


class ActorCriticTorchLearner(TorchLearner):
    """The base of learners with an actor and a critic."""

    policy: Any

    @property
    def entropy_coeff_schedulers_per_module(self) -> dict[str, Coefficient]:
        """Returns, for each module, the object whose ``get_current_value()`` returns its entropy's weight."""
        return {DEFAULT_MODULE_ID: Coefficient(self.get_buffer("ent_coef"))}

    @property
    def curr_kl_coeffs_per_module(self) -> dict[str, Tensor]:
        """Name of a module -> the weight [] of its divergence."""
        coefficient = getattr(self, "kl_coef", None)
        return {DEFAULT_MODULE_ID: torch.zeros(()) if coefficient is None else coefficient}

    def _evaluated(self, module_id: str, batch: Batch, fwd_out: Batch) -> tuple[Any, Tensor, Tensor, Tensor | None]:
        """Distribution of actions, values [B], log-probabilities [B] of those taken, and entropies [B], by a module."""
        module = self.module[module_id]
        kind = module.get_train_action_dist_cls()
        distribution = kind.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        actions = batch[Columns.ACTIONS]
        return distribution, values, distribution.logp(actions), distribution.entropy()

    def _noting(self, objective: Objective) -> Tensor:
        """Returns the loss of an objective, and reports its metrics."""
        self._noted |= dict(objective.metrics)
        return objective.loss


class PPOTorchLearner(ActorCriticTorchLearner, PPOLearner):
    """PPO's. Columns of a minibatch are those of the episodes, ``advantages`` with mean 0 and standard deviation 1,
    ``value_targets``, and values as they were (``vf_preds``). Rows that ``loss_mask`` leaves out are not counted."""

    updates_by_batch = _by_columns = False
    _kl: Tensor | None = None

    def build(self) -> None:
        super().build()
        config = self.config
        trace = config.lambda_ if config.use_gae and config.use_critic else 1.0
        self._learner_connector.prepend(AddOneTsToEpisodesAndTruncate())
        self._learner_connector.append(
            GeneralAdvantageEstimation(gamma=config.gamma, lambda_=trace, critic=config.use_critic)
        )

    def passed(self, episodes: list[Any]) -> dict[str, Batch]:
        found = super().passed(episodes)
        columns, module = found[DEFAULT_MODULE_ID], self.module[DEFAULT_MODULE_ID]
        if Columns.ACTION_LOGP not in columns:  # they were chosen by the networks as they are
            with torch.no_grad():
                inputs = module.forward_train(dict(columns))[Columns.ACTION_DIST_INPUTS]
                acting = module.get_exploration_action_dist_cls().from_logits(inputs)
                columns |= {Columns.ACTION_DIST_INPUTS: inputs}
                columns |= {Columns.ACTION_LOGP: acting.logp(columns[Columns.ACTIONS])}
        return found

    def learn_from(self, passes: Iterable[Iterable[Any]]) -> Lesson:
        with self._one_update():
            return super().learn_from(passes)

    def own_step(self, batches: dict[str, Batch], sample: Any = None) -> Update:
        self._by_columns = True
        try:
            found = super().own_step(batches, sample)
            return found._replace(metrics={"approx_kl": torch.zeros(()), **found.metrics})
        finally:
            self._kl, self._by_columns = None, False  # of the former, a graph that could not be copied

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        self._check_agents(module_id)
        distribution, values, log_prob, entropy = self._evaluated(module_id, batch, fwd_out)
        counted = batch.get(Columns.LOSS_MASK)

        def rows(column: Tensor) -> Tensor:
            return column.flatten() if counted is None else column[counted]

        names = Columns.VF_PREDS, Columns.ACTION_LOGP, Columns.ADVANTAGES, Columns.VALUE_TARGETS
        sample = RolloutBufferSamples(batch[Columns.OBS], batch[Columns.ACTIONS], *(rows(batch[n]) for n in names))
        values, log_prob, entropy = rows(values), rows(log_prob), None if entropy is None else rows(entropy)
        if Columns.ACTION_DIST_INPUTS in batch:
            acting = self.module[module_id].get_exploration_action_dist_cls()
            before = acting.from_logits(batch[Columns.ACTION_DIST_INPUTS])
            self._kl = rows(before.kl(distribution)).mean()
        objective = self.objective(sample, values, log_prob, entropy)
        with torch.no_grad():
            kl = self.divergence(sample, log_prob - sample.old_log_prob).detach()
            explained = explained_variance_of_tensors(values, sample.returns)
        return self._noting(
            objective._replace(metrics={**objective.metrics, "approx_kl": kl, "explained_variance": explained})
        )

    def normalized(self, advantages: Tensor) -> Tensor:
        return advantages if self._by_columns else super().normalized(advantages)  # pieces have done so with all rows

    def divergence(self, batch: Any, log_ratio: Tensor) -> Tensor:
        return super().divergence(batch, log_ratio) if self._kl is None else self._kl


class _OfUnrolls(ActorCriticTorchLearner):
    """The base of learners from unrolls of an older policy: each step of every environment is a row."""

    observations: Callable[[Unroll], Any]
    """A method of the learners themselves."""
    objective: Callable[[Unroll, Evaluated], Objective]
    """Likewise."""

    def batch_of(self, batch: Unroll) -> Batch:
        steps, policy = batch.trajectory, self.policy
        found = {
            **policy._batch(self.observations(batch)),
            Columns.ACTIONS: policy._taken(rows_of(steps.actions)),
            Columns.REWARDS: rows_of(steps.rewards),
            Columns.ACTION_LOGP: rows_of(steps.log_probs),
            Columns.TERMINATEDS: rows_of(steps.cuts & (steps.discounts == 0)),
            Columns.TRUNCATEDS: rows_of(steps.cuts & (steps.discounts != 0)),
        }
        name = Columns.ACTION_DIST_INPUTS
        return found | ({name: rows_of(steps.extras[name])} if name in steps.extras else {})

    def own_unroll(self, batch: Unroll) -> Update:
        """Makes a gradient step by a program's own methods."""
        return self.own_step({DEFAULT_MODULE_ID: self.batch_of(batch)}, batch)

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        unroll = self._sample
        like = unroll.trajectory.rewards
        _, values, log_probs, entropy = self._evaluated(module_id, batch, fwd_out)
        with torch.no_grad():
            last = self.policy.predict_values(mapped(lambda part: part[-1], unroll.trajectory.observations)).reshape(
                1, -1
            )
        found = Evaluated(
            torch.cat([in_time(values.flatten(), like), last]),
            in_time(log_probs, like),
            None if entropy is None else in_time(entropy, like),
        )
        return self._noting(self.objective(unroll, found))


class IMPALATorchLearner(_OfUnrolls, IMPALALearner):
    """IMPALA's. Columns of a batch are observations, actions, rewards, and log-probabilities of the policy that
    acted."""

    def gradient_step(self, batch: Unroll) -> Update:
        return self.own_unroll(batch) if self.plainly else super().gradient_step(batch)


class APPOTorchLearner(_OfUnrolls, APPOLearner):
    """APPO's, with the columns of :class:`IMPALATorchLearner`."""

    def gradient_step(self, batch: Unroll) -> Update:
        return self.own_unroll(batch) if self.plainly else super().gradient_step(batch)
