"""AlphaZero's self-play processes on Ray."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import cloudpickle

from polyak.algorithms.search.crew import Crew, Job, PlayerError, Seat, Weights, Worker, raised
from polyak.distributed.ray_workers import Failure as Lost
from polyak.distributed.ray_workers import Workers
from polyak.envs.vec.env_worker import WorkerError

PATIENCE = 600.0
"""Seconds within which a process must have started; moves have no time limit."""


class RayCrew(Crew):
    """A :class:`~polyak.algorithms.search.crew.Crew` whose processes run on Ray, on this machine or others.

    For ``AlphaZero(..., n_workers=8, crew_class=RayCrew)``. The games equal those of local processes with equal seeds.
    Each process reserves one processor; weights are sent once for all, through Ray's object store. Ray is used from the
    start of ``learn`` to its end, and shut down then if it was started here.
    """

    _table: _Table | None = None

    def _hire(self) -> Iterator[Worker]:
        table = self._table = _Table(self._jobs)
        for number in range(len(self._jobs)):
            yield _Actor(table, number)

    def _sent(self, weights: Weights) -> Any:
        assert self._table is not None
        return self._table.workers.put(weights)

    def _end(self) -> None:
        super()._end()
        table, self._table = self._table, None
        if table is not None:
            table.workers.stop()


class _Table:
    """All processes, and the last answer of each."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.workers = Workers(Seat, [(cloudpickle.dumps(job),) for job in jobs], math.inf, name="players")
        self.answers: dict[int, Any] = {}
        self.is_taking = False

    def wait(self) -> None:
        """Receive available answers, after at most one second."""
        self.workers.has_answer(1.0)  # Ctrl-C can interrupt here
        self.is_taking = True
        for number, _, answer in self.workers.answers(wait=False):
            self.answers[number] = _read(number, answer)
        self.is_taking = False


class _Actor:
    """A :class:`~polyak.algorithms.search.crew.Worker` whose process runs on Ray."""

    def __init__(self, table: _Table, number: int) -> None:
        self._table, self._number = table, number
        self._within: float | None = PATIENCE
        self._asking = False

    @property
    def is_sound(self) -> bool:
        failed = isinstance(self._table.answers.get(self._number), PlayerError)
        return not (failed or self._asking or self._table.is_taking)

    def ask(self, what: str, argument: Any) -> None:
        self._asking = True
        self._table.answers.pop(self._number, None)
        self._table.workers.ask(self._number, "answer", what, argument, within=self._within)
        self._asking, self._within = False, None

    def answer(self) -> Any:
        while self._number not in self._table.answers:
            self._table.wait()
        answer = self._table.answers[self._number]
        if isinstance(answer, PlayerError):
            raise answer
        return answer

    def dismiss(self) -> None:
        self._table.workers.end(self._number)

    def end(self) -> None:
        """Does nothing: Ray ends the process."""


def _read(number: int, answer: Any) -> Any:
    """Returns a process's answer, or the error for it."""
    if isinstance(answer, WorkerError):
        return raised(number, answer)
    if not isinstance(answer, Lost):
        return deepcopy(answer)  # arrays are in Ray's store, and must outlive it
    if isinstance(answer.error, TimeoutError):
        return PlayerError(
            f"process {number} of those that play has not begun within {PATIENCE:g} seconds. Ray waits for room, and "
            "each reserves one processor: is there one for it?"
        )
    return PlayerError(f"process {number} of those that play {'died' if answer.gone else 'failed'}: {answer.error}")
