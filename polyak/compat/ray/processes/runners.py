"""Runners in processes of their own: how they are asked, and what happens when one breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from polyak.compat.ray.config.base import HORIZON, AlgorithmConfig
from polyak.compat.ray.filters import filter_around
from polyak.compat.ray.processes.acting import made, tolerance_of
from polyak.compat.ray.processes.fragments import Fragment
from polyak.compat.ray.processes.learning import Learning, learning_of
from polyak.compat.ray.processes.runner_worker import RunnerWorker
from polyak.compat.ray.rollouts import WholeRollouts
from polyak.distributed.ray_workers import Failure
from polyak.distributed.statistics import SharedStatistics
from polyak.distributed.weights import flat_weights
from polyak.kinds.lessons import Lessons


class RemoteRunners:
    """Processes that collect experience for a model here.

    A batch is a fragment of each of them. Where the model learns meanwhile (see
    :mod:`polyak.compat.ray.processes.learning`) each has as many requests as ``max_requests_in_flight_per_env_runner``
    says; else all of a batch are by the newest weights. One that died, or that has not answered for
    ``sample_timeout_s``, is replaced; the others make its part of the batch.

    Args:
        config: what to make.

    Raises:
        Exception: whatever an environment raises, with its traceback.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        tolerance = tolerance_of(
            config,
            delay=config.delay_between_env_runner_restarts_s,
            shrinks=config.ignore_env_runner_failures and not config.restart_failed_env_runners,
            errors=config.restart_failed_sub_environments,
        )
        self._workers, said = made(RunnerWorker, config, config.num_env_runners, config.sample_timeout_s, tolerance)
        self.processes = {worker: process for worker, (process, _) in enumerate(said)}
        """Which runner -> its process."""
        _, self.spaces = said[0]
        self._healthy = set(self.processes)
        self._fragments: list[tuple[int, Fragment]] = []
        self._lessons: Lessons | None = None
        self._learning: Learning
        self._statistics: SharedStatistics | None = None
        self._weights: Any = None
        self._version = 0

    # -- one iteration -------------------------------------------------------------------------------------------------

    def serve(self, model: Any, callback: Any, restart: bool = True) -> RemoteRunners:
        """Collect for a model from now on.

        Args:
            model: its environments are elsewhere.
            callback: called with episodes that end; ``None``: nothing is.
            restart: begin to count at zero.
        """
        self.model, self._callback = model, callback
        self._learning = learning_of(model, len(self._workers))
        own = filter_around(model.get_env())
        alone = len(self._workers) == 1 and not self._learning.ahead
        merges = self.config.merge_env_runner_states is not False and not alone
        sends = alone or (self.config.broadcast_env_runner_states and merges)
        self._statistics = None if own is None else SharedStatistics(own, merges, sends)
        self._lessons = Lessons(model, HORIZON, restart=restart)
        self._weights = None
        return self

    @property
    def env(self) -> Any:
        """What the model takes for its environments."""
        return self.model.get_env()

    local_env_runner = None

    def num_remote_env_runners(self) -> int:
        """Runners in other processes."""
        return len(self._workers)

    def follow(self) -> None:
        """Act by the weights that the model has been brought to."""
        self._weights = None

    @property
    def num_healthy_env_runners(self) -> int:
        """Those that answer."""
        return len(self._healthy)

    @property
    def num_restarts(self) -> int:
        """How many had to be replaced so far."""
        return self._workers.restarts

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around the training steps of one iteration."""
        assert self._lessons is not None
        with self._lessons.under_way():
            yield

    def iterate(self) -> bool:
        """Take one batch and learn from it."""
        model, learning = self.model, self._learning
        if self._weights is None or not learning.ahead:
            self._broadcast()
        with model._split.env:
            fragments = self._gather(learning.ahead)
            least = self.config.total_train_batch_size if isinstance(model, WholeRollouts) else 0
            while sum(fragment.made for fragment in fragments) < least:
                fragments += self._gather(learning.ahead)
        for fragment in fragments:
            self._report(fragment)
        if self._statistics is not None:
            self._statistics.take([fragment.report for fragment in fragments if fragment.report is not None])
        due = learning.learn(fragments)
        model._check_iteration()
        if due and learning.ahead:
            self._broadcast()
        return True

    def _broadcast(self) -> None:
        """Put the newest weights where all runners can read them."""
        self._weights = self._workers.put(flat_weights(self.model.policy))
        self._version = self.model.learner.steps

    def _gather(self, ahead: bool) -> list[Fragment]:
        """A fragment for each runner that there should be, in their order where all are by the same weights."""
        need = len(self._workers)
        while len(self._fragments) < need:
            self._workers.renew_due()
            self._ask(need, ahead)
            self._take()
        if ahead:
            self._ask(need, ahead)  # so that no runner rests during updates
        taken, self._fragments = self._fragments[:need], self._fragments[need:]
        return [fragment for _, fragment in (taken if ahead else sorted(taken, key=lambda one: one[0]))]

    def _take(self) -> dict[int, Any]:
        """Wait for answers, and note them; what functions have returned, by runner."""
        returned: dict[int, Any] = {}
        for worker, method, answer in self._workers.answers():
            if isinstance(answer, Failure):
                if method == "apply" and not answer.gone:
                    raise answer.error
                self._healthy.discard(worker)
                self._workers.replace(worker, answer, "runner", "Another one takes its place.")
            elif method == "apply":
                returned[worker] = answer
            elif method == "describe":
                self.processes[worker], _ = answer
                self._healthy.add(worker)
            else:
                self._workers.failures = 0
                self._fragments.append((worker, answer))
        return returned

    def foreach_env_runner(self, func: Callable[[Any], Any], *, local_env_runner: bool = True) -> list[Any]:
        """What a function returns of each runner that answers; this process has none.

        Args:
            func: called with a runner, which has ``env``, ``config`` and ``worker_index``.
            local_env_runner: without effect, since there is none here.
        """
        asked = sorted(self._healthy)
        for worker in asked:
            self._workers.ask(worker, "apply", func)
        returned: dict[int, Any] = {}
        while any(worker in self._healthy and worker not in returned for worker in asked):
            returned |= self._take()
        return [returned[worker] for worker in sorted(returned)]

    def _ask(self, need: int, ahead: bool) -> None:
        most = self.config.max_requests_in_flight_per_env_runner if ahead else 1
        for worker in sorted(self._healthy):
            while self._workers.waiting_for(worker) < most:
                asked = sum(map(self._workers.waiting_for, self._healthy))
                if not ahead and asked + len(self._fragments) >= need:
                    return
                statistics = None if self._statistics is None else self._statistics.request()
                request = self._learning.request()
                self._workers.ask(worker, "sample", self._weights, self._version, statistics, *request)

    def _report(self, fragment: Fragment) -> None:
        """Note the episodes that ended."""
        model = self.model
        for _, infos in fragment.infos:
            dones = np.array(["episode" in info for info in infos])
            model._update_info_buffer(infos, dones)
            if self._callback is not None:
                self._callback.add_infos(infos)

    def stop(self) -> None:
        """End all of them."""
        if self._lessons is not None:
            self._lessons.end()
        self._workers.stop()
