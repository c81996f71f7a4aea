"""Learners in processes of their own, which learn as one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from polyak.core.loops.asynchronous import AsynchronousAlgorithm
from polyak.scale.config.base import AlgorithmConfig
from polyak.scale.environments import portable
from polyak.scale.groups import LocalLearner
from polyak.scale.processes.fragments import Fragment, split, taken_from
from polyak.scale.processes.ray_workers import Failure, Workers
from polyak.scale.processes.workers import LearnerWorker, Lesson, Spaces, bring, state_of, values_of

ATTEMPTS = 3
"""How often a batch is tried before its failure is one of the program."""
PATIENCE = 1800.0
"""Seconds that learners wait for each other."""


class RemoteLearners(LocalLearner):
    """Processes that learn for a model here, which is brought up to date after they have learned.

    Each gets an equal share of the environments of a batch and makes the same number of gradient steps, whose gradients
    are averaged. If one dies, all are made anew, take the last state that was brought here, and learn from the batch
    again.

    Args:
        config: what to make.
        model: its ``train()`` asks them from now on.
        spaces: of its environments.
    """

    is_local, is_remote = False, True

    def __init__(self, config: AlgorithmConfig, model: Any, spaces: Spaces) -> None:
        super().__init__(model)
        self.config, self.restarts = config, 0
        size = config.num_learners
        envs = -(-model.n_envs // size)
        processors = 1 if config.num_cpus_per_learner == "auto" else config.num_cpus_per_learner
        self._workers = Workers(
            LearnerWorker,
            [(portable(config), spaces, envs, rank) for rank in range(size)],
            PATIENCE,
            num_cpus=processors,
            num_gpus=config.num_gpus_per_learner,
        )
        self.processes: list[int] = []
        """Of the learners."""
        self._changed = False
        try:
            self._begin()
        except BaseException:
            self._workers.stop()
            raise
        model.train = self.train

    def _begin(self) -> None:
        """Let all of them go on as one from the model's state."""
        size = len(self._workers)
        known = _checked(self._workers.ask_all("describe"))
        self.processes = [process for process, _ in known]
        address, state, values = known[0][1], state_of(self.model), values_of(self.model)
        shared = [[each] * size for each in (address, size, state, values, PATIENCE)]
        _checked(self._workers.ask_all("join", *shared))
        self._kept = state, values
        self._changed = False

    def train(self) -> None:
        """Learn from the rollouts that the model has; in place of its own ``train()``."""
        model, size = self.model, len(self._workers)
        model._turn_dials()
        shares = [split(fragment, size) for fragment in self._fragments()]
        dealt = [[parts[rank] for parts in shares] for rank in range(size)]
        for _ in range(ATTEMPTS):
            if self._changed:
                state, values = state_of(model), values_of(model)
                _checked(self._workers.ask_all("load", [state] * size, [values] * size))
                self._kept, self._changed = (state, values), False
            lessons = self._ask_to_train(dealt)
            if lessons is not None:
                self._follow(lessons)
                return
            warnings.warn("a learner is gone. All are made anew from the last state.", RuntimeWarning, stacklevel=2)
            self._recover()
        raise RuntimeError(f"learners died {ATTEMPTS} times in a row of one batch.")

    def _fragments(self) -> list[Fragment]:
        model = self.model
        if isinstance(model, AsynchronousAlgorithm):
            return [taken_from(one.buffer, one.version, one) for one in model.rollouts]
        return [taken_from(model.rollout_buffer, model.learner.steps)]

    def _ask_to_train(self, dealt: list[list[Fragment]]) -> list[Lesson] | None:
        """``None``: one of them has died."""
        size = len(self._workers)
        whole = [rank == 0 for rank in range(size)]
        progress = [self.model._current_progress_remaining] * size
        answers = self._workers.ask_all("train", dealt, progress, whole)
        failures = [answer for answer in answers if isinstance(answer, Failure)]
        if not failures:
            return answers
        if not any(failure.gone for failure in failures):
            raise failures[0].error
        return None

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

    def _recover(self) -> None:
        self.restarts += 1
        bring(self.model, *self._kept)
        for rank in range(len(self._workers)):
            self._workers.renew(rank)
        self._begin()

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        super().set_weights(weights)
        self._changed = True

    def foreach_learner(self, func: Callable[[Any], Any]) -> list[Any]:
        """What a function returns of each learner."""
        return _checked(self._workers.ask_all("apply", [func] * len(self._workers)))

    def stop(self) -> None:
        """End all of them."""
        self._workers.stop()


def _checked(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Failure):
            raise answer.error
    return answers
