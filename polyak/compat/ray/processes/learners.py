"""Learners in processes of their own, which learn as one: what those of all algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyak.checkpoint.saved import Saved
from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.environments import portable
from polyak.compat.ray.groups import LocalLearner
from polyak.compat.ray.processes.elsewhere import Spaces
from polyak.compat.ray.processes.learner_worker import LearnerWorker
from polyak.compat.ray.processes.state import state_of, values_of
from polyak.distributed.ray_workers import Failure, Workers
from polyak.warning import warn_user

ATTEMPTS = 3
"""How often something is tried before its failure is one of the program."""
PATIENCE = 1800.0
"""Seconds that learners wait for each other."""


class RemoteLearners(LocalLearner):
    """Processes that learn for a model here, which is brought up to date after they have learned.

    They make the same number of gradient steps, each on an equal share of the rows, and their gradients are averaged.
    If one dies, all are made again and take the last state that was brought here.

    Args:
        config: what to make.
        model: which they learn for.
        module: its networks, under RLlib's contract.
        spaces: of its environments.
    """

    is_local, is_remote = False, True

    def __init__(self, config: AlgorithmConfig, model: Any, module: Any, spaces: Spaces) -> None:
        super().__init__(model, module)
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
        """Whether the model here is ahead of them."""
        self._kept = self._state()
        """The last state that was brought here."""
        try:
            self._begin()
        except BaseException:
            self._workers.stop()
            raise

    def _state(self) -> tuple[Saved, dict[str, Any]]:
        """Of the model here."""
        return state_of(self.model), values_of(self.model)

    def _begin(self) -> None:
        """Let all of them continue as one from the last state."""
        size = len(self._workers)
        known = _checked(self._workers.ask_all("describe"))
        self.processes = [process for process, _ in known]
        shared = [[each] * size for each in (known[0][1], size, *self._kept, PATIENCE)]
        _checked(self._workers.ask_all("join", *shared))

    def _load(self) -> None:
        """Bring them to where the model here is."""
        if self._changed:
            self._kept, size = self._state(), len(self._workers)
            _checked(self._workers.ask_all("load", *([each] * size for each in self._kept)))
            self._changed = False

    def _ask(self, method: str, *arguments: Any) -> list[Any] | None:
        """What all of them answer; ``None``: one of them has died.

        Raises:
            Exception: what one of them raised while all of them lived.
        """
        answers = self._workers.ask_all(method, *arguments)
        failures = [answer for answer in answers if isinstance(answer, Failure)]
        if not failures:
            return answers
        if not any(failure.gone for failure in failures):
            raise failures[0].error
        return None

    def _recover(self) -> None:
        """Make all of them again."""
        warn_user("a learner is gone. All are made again from the last state.", RuntimeWarning)
        self.restarts += 1
        for rank in range(len(self._workers)):
            self._workers.renew(rank)
        self._begin()

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        self.settle()
        super().set_weights(weights)
        self.follow()

    def follow(self) -> None:
        """Let the learners take the state of the model here before they learn on."""
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
