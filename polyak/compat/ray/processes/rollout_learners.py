"""Learners in processes of their own that learn from rollouts."""

from __future__ import annotations

from typing import Any

from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.processes.elsewhere import Spaces
from polyak.compat.ray.processes.fragments import Fragment, split, taken_from
from polyak.compat.ray.processes.learner_worker import Lesson
from polyak.compat.ray.processes.learners import ATTEMPTS, RemoteLearners
from polyak.compat.ray.processes.state import bring
from polyak.compat.ray.rollouts import WholeRollouts
from polyak.kinds.asynchronous import AsynchronousAlgorithm


class RolloutLearners(RemoteLearners):
    """Each gets an equal share of the environments of a batch, and learns from it again if one of them died meanwhile.

    Args:
        config: what to make.
        model: its ``train()`` asks them from now on.
        module: its networks, under RLlib's contract.
        spaces: of its environments.
    """

    def __init__(self, config: AlgorithmConfig, model: Any, module: Any, spaces: Spaces) -> None:
        super().__init__(config, model, module, spaces)
        model.train = self.train

    def train(self) -> None:
        """Learn from the rollouts that the model has; in place of its own ``train()``."""
        model, size = self.model, len(self._workers)
        model._sync_hyperparameters()
        whole = isinstance(model, WholeRollouts) and size > 1
        parts = [split(fragment, size, whole) for fragment in self._fragments()]
        dealt = [[part[rank] for part in parts] for rank in range(size)]
        first = [rank == 0 for rank in range(size)]
        for _ in range(ATTEMPTS):
            self._load()
            lessons = self._ask("train", dealt, [model._current_progress_remaining] * size, first)
            if lessons is not None:
                self._follow(lessons)
                return
            self._recover()
        raise RuntimeError(f"learners died {ATTEMPTS} times in a row of one batch.")

    def _fragments(self) -> list[Fragment]:
        model = self.model
        if isinstance(model, AsynchronousAlgorithm):
            return [taken_from(one.buffer, one.version, one) for one in model.rollouts]
        return [taken_from(model.rollout_buffer, model.learner.steps)]

    def _follow(self, lessons: list[Lesson]) -> None:
        """Bring the model here to where the learners are."""
        first = lessons[0]
        assert first.state is not None
        bring(self.model, first.state, first.values)
        self._kept = first.state, first.values
        for name in {name for lesson in lessons for name in lesson.metrics}:
            for lesson in lessons:
                if name in lesson.metrics:
                    self.model.logger.record(f"train/{name}", lesson.metrics[name])
