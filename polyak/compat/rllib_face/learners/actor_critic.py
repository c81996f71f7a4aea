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
from polyak.compat.rllib_face.connectors.batches import (
    AddOneTsToEpisodesAndTruncate,
    GeneralAdvantageEstimation,
    NumpyToTensor,
)
from polyak.compat.rllib_face.learners.base import Batch, TorchLearner
from polyak.learning.learner import Objective, Update
from polyak.learning.vtrace_learner import Evaluated, Unroll, in_time, rows_of


class Coefficient(NamedTuple):
    """A coefficient as RLlib's losses ask for it."""

    value: Tensor

    def get_current_value(self) -> Tensor:
        """[]"""
        return self.value


class ActorCriticTorchLearner(TorchLearner):
    """What they share."""

    policy: Any

    @property
    def entropy_coeff_schedulers_per_module(self) -> dict[str, Coefficient]:
        """Name of a module -> what ``get_current_value()`` says of the weight of its entropy."""
        return {DEFAULT_MODULE_ID: Coefficient(self.get_buffer("ent_coef"))}

    @property
    def curr_kl_coeffs_per_module(self) -> dict[str, Tensor]:
        """Name of a module -> the weight [] of its divergence."""
        coefficient = getattr(self, "kl_coef", None)
        return {DEFAULT_MODULE_ID: torch.zeros(()) if coefficient is None else coefficient}

    def _of_steps(self, observations: Any, actions: Tensor) -> Batch:
        """Observations and actions of B steps, as a module reads them."""
        flat = self.policy._taken(actions)
        return {**self.policy._batch(observations), Columns.ACTIONS: flat}

    def _evaluated(self, module_id: str, batch: Batch, fwd_out: Batch) -> tuple[Any, Tensor, Tensor, Tensor | None]:
        """Distribution of actions, values [B], log-probabilities [B] of those taken, and entropies [B], by a module."""
        module = self.module[module_id]
        kind = module.get_train_action_dist_cls()
        distribution = kind.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        actions = batch[Columns.ACTIONS]
        return distribution, values.flatten(), distribution.logp(actions), distribution.entropy()

    def _noting(self, objective: Objective) -> Tensor:
        """The loss of an objective, whose metrics are reported."""
        self._noted |= dict(objective.metrics)
        return objective.loss


class PPOTorchLearner(ActorCriticTorchLearner, PPOLearner):
    """PPO's. Columns of a minibatch are observations, actions, their log-probabilities and distributions when they were
    chosen, values then, advantages with mean 0 and standard deviation 1, and ``value_targets``."""

    updates_by_batch = False
    _kl: Tensor | None = None

    def build(self) -> None:
        super().build()
        self._learner_connector.prepend(AddOneTsToEpisodesAndTruncate())
        self._learner_connector.append(GeneralAdvantageEstimation())
        for piece in self._learner_connector.connectors:
            if type(piece) is NumpyToTensor:
                piece.read = self._read

    def _read(self, observations: Any) -> Any:
        """Observations of environments as modules read them."""
        turned, batch = getattr(self.policy, "_turned", False), getattr(self.policy, "_batch", None)
        if batch is None:  # gradient steps are polyak's own, and read none of these
            return observations
        return batch(observations.movedim(-1, 1) if turned else observations)[Columns.OBS]

    def learn_from(self, passes: Iterable[Iterable[Any]]) -> Lesson:
        with self._one_update():
            return super().learn_from(passes)

    def gradient_step(self, batch: Any) -> Update:
        if not self.plainly:
            return super().gradient_step(batch)
        try:
            found = self.own_step(batch)
            return found._replace(metrics={"approx_kl": torch.zeros(()), **found.metrics})
        finally:
            self._kl = None  # a graph that could not be copied

    def batch_of(self, batch: Any) -> Batch:
        advantages = batch.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = self.normalized(advantages)
        found = {
            **self._of_steps(batch.observations, batch.actions),
            Columns.ACTION_LOGP: batch.old_log_prob,
            Columns.VF_PREDS: batch.old_values,
            Columns.ADVANTAGES: advantages,
            Columns.VALUE_TARGETS: batch.returns,
        }
        name = Columns.ACTION_DIST_INPUTS
        return found | ({name: batch.extras[name]} if name in batch.extras else {})

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        self._check_agents(module_id)
        distribution, values, log_prob, entropy = self._evaluated(module_id, batch, fwd_out)
        sample = self._sample._replace(
            old_log_prob=batch[Columns.ACTION_LOGP],
            advantages=batch[Columns.ADVANTAGES],
            returns=batch[Columns.VALUE_TARGETS],
        )
        if Columns.ACTION_DIST_INPUTS in batch:
            acting = self.module[module_id].get_exploration_action_dist_cls()
            self._kl = acting.from_logits(batch[Columns.ACTION_DIST_INPUTS]).kl(distribution).mean()
        objective = self.objective(sample, values, log_prob, entropy)
        kl = self.divergence(sample, log_prob - sample.old_log_prob).detach()
        return self._noting(objective._replace(metrics={**objective.metrics, "approx_kl": kl}))

    def divergence(self, batch: Any, log_ratio: Tensor) -> Tensor:
        return super().divergence(batch, log_ratio) if self._kl is None else self._kl


class _OfUnrolls(ActorCriticTorchLearner):
    """Of learners from unrolls of an older policy: each step of every environment is a row."""

    observations: Callable[[Unroll], Any]
    """A method of the learners themselves."""
    objective: Callable[[Unroll, Evaluated], Objective]
    """Likewise."""

    def batch_of(self, batch: Unroll) -> Batch:
        steps = batch.trajectory
        found = {
            **self._of_steps(self.observations(batch), rows_of(steps.actions)),
            Columns.REWARDS: rows_of(steps.rewards),
            Columns.ACTION_LOGP: rows_of(steps.log_probs),
        }
        name = Columns.ACTION_DIST_INPUTS
        return found | ({name: rows_of(steps.extras[name])} if name in steps.extras else {})

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Batch, fwd_out: Batch) -> Tensor:
        unroll = self._sample
        like = unroll.trajectory.rewards
        _, values, log_probs, entropy = self._evaluated(module_id, batch, fwd_out)
        with torch.no_grad():
            last = self.policy.predict_values(mapped(lambda part: part[-1], unroll.trajectory.observations)).reshape(
                1, -1
            )
        found = Evaluated(
            torch.cat([in_time(values, like), last]),
            in_time(log_probs, like),
            None if entropy is None else in_time(entropy, like),
        )
        return self._noting(self.objective(unroll, found))


class IMPALATorchLearner(_OfUnrolls, IMPALALearner):
    """IMPALA's. Columns of a batch are observations, actions, rewards, and log-probabilities of the policy that
    acted."""

    def gradient_step(self, batch: Unroll) -> Update:
        return self.own_step(batch) if self.plainly else super().gradient_step(batch)


class APPOTorchLearner(_OfUnrolls, APPOLearner):
    """APPO's, with the columns of :class:`IMPALATorchLearner`."""

    def gradient_step(self, batch: Unroll) -> Update:
        return self.own_step(batch) if self.plainly else super().gradient_step(batch)
