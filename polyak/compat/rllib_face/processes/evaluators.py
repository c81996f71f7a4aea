"""Evaluation in separate processes, which may run beside training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from polyak.collecting.actor import copy_of
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.evaluation import EvaluationOrder, Played
from polyak.compat.rllib_face.filters import filter_around
from polyak.compat.rllib_face.processes.acting import processes_of, tolerance_of
from polyak.compat.rllib_face.processes.evaluator_worker import EvaluatorWorker
from polyak.distributed.integrity import Integrity, whole
from polyak.distributed.ray_workers import Failure
from polyak.distributed.statistics import Moments, moments_in

SEEDS_APART = 10_007
"""Between the seeds of two evaluators: more than the episodes of one."""


def parts_of(order: EvaluationOrder, number: int) -> list[EvaluationOrder | None]:
    """Splits a request between several evaluators; ``None`` for those without a part."""
    if order.in_steps:
        durations = [-(-order.duration // number)] * number
    else:
        durations = [order.duration // number + (index < order.duration % number) for index in range(number)]
    seeds = [order.seed + SEEDS_APART * index for index in range(number)]
    return [
        order._replace(duration=duration, seed=seed) if duration else None
        for duration, seed in zip(durations, seeds, strict=True)
    ]


class RemoteEvaluators:
    """Evaluators in other processes.

    One that dies, or that has not answered for ``evaluation_sample_timeout_s``, is replaced, and the new one plays its
    episodes.

    Args:
        config: the algorithm's config.

    Raises:
        Exception: an environment's error, with its traceback.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        number = config.evaluation_num_env_runners
        own, patience = config.evaluation_settings(), config.evaluation_sample_timeout_s
        tolerance, name = tolerance_of(config), "evaluation_num_env_runners"
        self._workers = processes_of(EvaluatorWorker, own, number, patience, tolerance, name)
        try:
            self.processes = self._workers.begin("describe", config.env_runner_restore_timeout_s)
            """The process id of each evaluator."""
        except BaseException:
            self._workers.stop()
            raise
        self._endless = config.evaluation_duration == "auto"
        self._first: dict[int, EvaluationOrder] = {}
        """The first request to each evaluator."""
        self._orders: dict[int, EvaluationOrder] = {}
        """The current request to each evaluator."""
        self._played: dict[int, list[Played]] = {}
        self._renewed: set[int] = set()
        self._policy: Any = None
        self._rate: float | None = None
        self._moments: Moments | None = None
        self.integrity = Integrity()

    @property
    def num_restarts(self) -> int:
        """Number of replacements so far."""
        return self._workers.restarts

    def renewed(self) -> list[int]:
        """Returns the evaluators that were replaced since the last call."""
        found, self._renewed = sorted(self._renewed), set()
        return found

    def recover(self) -> None:
        """Drop all requests if an exception has interrupted one of them."""
        if self.integrity.broken:
            self._workers.disown()
            self._orders, self._played = {}, {}
            self.integrity.broken = False

    @whole
    def begin(self, model: Any, order: EvaluationOrder) -> None:
        """Let all evaluators play with a model's current policy."""
        self._finish()  # an evaluation that training has interrupted
        self._policy = self._workers.put(cloudpickle.dumps(copy_of(model.policy).to("cpu")))
        self._rate = getattr(model, "exploration_rate", None)
        known = filter_around(model.get_env())
        self._moments = None if known is None else moments_in(known)
        self._played, self._workers.failures = {}, 0
        number = len(self._workers)
        whole = order._replace(duration=number) if self._endless else order
        self._first = {worker: part for worker, part in enumerate(parts_of(whole, number)) if part is not None}
        for worker, part in self._first.items():
            self._ask(worker, part)

    def _ask(self, worker: int, order: EvaluationOrder, within: float | None = None) -> None:
        self._orders[worker] = order
        self._workers.ask(worker, "play", self._policy, self._rate, self._moments, order, within=within)

    @whole
    def iterate(self) -> None:
        """See which are ready, while training runs; where the duration is ``"auto"`` they play again."""
        for worker in self._take(wait=False) if self._orders else []:
            if self._endless:
                first = self._first[worker]
                again = sum(len(played.returns) for played in self._played[worker])
                self._ask(worker, first._replace(seed=first.seed + again))

    @whole
    def result(self) -> Played:
        """Waits for the end of all episodes, and returns their statistics."""
        self._finish()
        found = [played for worker in sorted(self._played) for played in self._played[worker]]
        return Played([r for one in found for r in one.returns], [n for one in found for n in one.lengths])

    def _finish(self) -> None:
        """Wait until all that was ordered is played."""
        while self._orders:
            self._take()

    def _take(self, wait: bool = True) -> list[int]:
        """Record results; returns the evaluators that have finished."""
        ready = []
        for worker, method, answer in self._workers.answers(wait):
            if isinstance(answer, Failure):
                self._failed(worker, answer)
            elif method == "describe":
                self.processes[worker] = answer
                self._renewed.add(worker)
            else:
                self._played.setdefault(worker, []).append(answer)
                del self._orders[worker]
                ready.append(worker)
        return ready

    def _failed(self, worker: int, failure: Failure) -> None:
        config = self.config
        self._workers.replace(worker, failure, "evaluator", "Another one takes its place.")
        if worker in self._orders:
            patience = config.env_runner_restore_timeout_s + config.evaluation_sample_timeout_s
            self._ask(worker, self._orders[worker], patience)

    def foreach(self, func: Callable[[Any], Any]) -> list[Any]:
        """Returns the results of a function of each evaluator, after all of them have played the requested episodes."""
        for answer in (answers := self._apply(func)):
            if isinstance(answer, Failure):
                raise answer.error
        return answers

    @whole
    def _apply(self, func: Callable[[Any], Any]) -> list[Any]:
        self._finish()
        return self._workers.ask_all("apply", [func] * len(self._workers))

    def stop(self) -> None:
        """End all evaluators."""
        self._workers.stop()
