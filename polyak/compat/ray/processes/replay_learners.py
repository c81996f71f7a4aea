"""Learners in processes of their own that learn from replayed experience."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.processes.batches import columns_of, errors_of, shares
from polyak.compat.ray.processes.elsewhere import Spaces
from polyak.compat.ray.processes.learner_worker import Step
from polyak.compat.ray.processes.learners import ATTEMPTS, RemoteLearners
from polyak.compat.ray.processes.state import bring
from polyak.learning.learner import Update
from polyak.seeding import rng_state, set_rng_state

BROUGHT_EVERY = 16
"""Gradient steps after which the learners' state is brought here, at the latest."""


class _Task(NamedTuple):
    """What all learners were asked to do."""

    method: str
    arguments: tuple[list[Any], ...]


class ReplayLearners(RemoteLearners):
    """Batches are drawn here, and each learner gets an equal share of the rows.

    If one of them dies, all are made again, take the last state, and do again what they had done since. With a seed the
    state is brought here after each ``train()``, else every :data:`BROUGHT_EVERY` gradient steps and at the end of an
    iteration.

    Args:
        config: what to make.
        model: its learner asks them from now on.
        module: its networks, under RLlib's contract.
        spaces: of its environments.
    """

    def __init__(self, config: AlgorithmConfig, model: Any, module: Any, spaces: Spaces) -> None:
        self._since: list[_Task] = []
        super().__init__(config, model, module, spaces)
        self._every = BROUGHT_EVERY if config.seed is None else 1
        self._train = model.train
        model.train, model._update_target = self.train, self.update_target
        model.learner.update = self.update  # the rest of train() stays: drawing, priorities, metrics

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """As the model's own ``train()``, and bring it up to date where that is due."""
        self._load()
        self._train(gradient_steps, batch_size)
        if len(self._since) >= self._every:
            self.settle()

    def update(self, batch: Any) -> Update:
        """One gradient step of all of them; in place of the learner's own ``update()``."""
        size, columns = len(self._workers), columns_of(batch)
        draws = self.config.seed is not None
        streams = [rng_state() if draws and rank == 0 else None for rank in range(size)]
        progress = [self.model._current_progress_remaining] * size
        steps: list[Step] = self._do(_Task("update", (shares(columns, size), progress, streams)))
        if draws:
            set_rng_state(*steps[0].streams)
        self.model.learner.steps += 1
        names = steps[0].metrics
        metrics = {name: torch.tensor(float(np.mean([step.metrics[name] for step in steps]))) for name in names}
        parts = [step.errors for step in steps if step.errors is not None]
        errors = torch.from_numpy(errors_of(parts, len(columns["rewards"]))) if parts else None
        return Update(metrics, errors)

    def update_target(self) -> None:
        """Move the target network of all of them."""
        self._load()
        self._do(_Task("update_target", ()))

    def settle(self) -> None:
        """Bring the model here to where the learners are."""
        if not self._since:
            return
        answers = self._do(_Task("state", ()))
        self._kept = answers[0], {}
        self._since = []
        bring(self.model, *self._kept)

    def _do(self, task: _Task) -> list[Any]:
        self._since.append(task)
        answers = self._ask(task.method, *task.arguments)
        for _ in range(ATTEMPTS):
            if answers is not None:
                return answers
            self._recover()
            for each in self._since:
                answers = self._ask(each.method, *each.arguments)
                if answers is None:
                    break
        raise RuntimeError(f"learners died {ATTEMPTS} times in a row of one batch.")

    def _state(self) -> Any:
        return super()._state()[0], {}  # counters of updates are kept here
