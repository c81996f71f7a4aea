"""Learners from replayed steps: DQN and SAC.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from polyak.algorithms.dqn import DQNLearner
from polyak.algorithms.sac import SACLearner
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.batches import (
    AddNextObservationsFromEpisodesToTrainBatch,
    AddObservationsFromEpisodesToBatch,
)
from polyak.compat.rllib_face.connectors.learning import episodes_of
from polyak.compat.rllib_face.learners.base import LOSSES, OPTIMIZERS, Batch, TorchLearner
from polyak.compat.rllib_face.models.values import ReadsOutputs
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Update

_OF_SAC = "SAC has three losses. Write critic_objective(), actor_objective() or temperature_objective()"
WEIGHTS, DISCOUNTS = "weights", "discounts"


class DQNTorchLearner(TorchLearner, ReadsOutputs, DQNLearner):
    """DQN's. Columns of a minibatch are observations, actions, rewards (of ``n_step`` steps together), ``new_obs``,
    ``terminateds``, importance ``weights``, and ``discounts`` of what ``new_obs`` are worth: 0 where an episode has
    ended. A dueling module is differentiated as it stands, without the factor of polyak's own heads."""

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
        return {
            **self.policy.columns_of(batch),
            Columns.TERMINATEDS: batch.discounts == 0,
            WEIGHTS: batch.weights,
            DISCOUNTS: batch.discounts,
        }

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


class SACTorchLearner(TorchLearner, SACLearner):
    """SAC's: what happens around updates is a program's, and its three losses are those of
    :class:`~polyak.algorithms.sac.SACLearner`."""

    reasons: ClassVar[Mapping[str, str]] = dict.fromkeys([*LOSSES, *OPTIMIZERS], _OF_SAC)
