"""Learners elsewhere that make the gradient steps of one here with it, each on its share of the rows.

The learner here is one of them, and has at all times what was learned: it acts, is saved and is resumed as if it were
alone. The others begin with a copy of it; since gradients are averaged before each step, all stay equal.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import cloudpickle
import torch

from polyak.data.batch import gathered
from polyak.distributed.exchange import SocketGroup, Turns, listening, own_address
from polyak.distributed.learner_process import LearnerProcess, Said, arrays_in, hyperparameters, tensors_in, texts_of
from polyak.distributed.ray_workers import PATIENCE, Failure, Workers
from polyak.distributed.runner_process import SEEDS_APART
from polyak.distributed.runners import Transport
from polyak.learning.data_parallel import Group
from polyak.learning.learner import Learner, Update
from polyak.warning import warn_user

Result = TypeVar("Result")
MOST_ATTEMPTS = 3
"""How often one step is tried with learners that die."""


class LearnerGroup:
    """A learner here and its fellows elsewhere.

    Args:
        n_learners: how many, the one here among them.
        transport: ``"ray"`` for processes on Ray, ``"local"`` for threads that take turns.
        seed: of the model; fellow k draws from the streams of ``seed + 1000 * k``.

    Raises:
        ImportError: ``polyak[scale]`` is missing.
    """

    def __init__(self, n_learners: int, transport: Transport, seed: int | None) -> None:
        self.size, self.restarts, self.busy = n_learners, 0, False
        first = int(torch.initial_seed() % 2**31) if seed is None else seed
        arguments = [(rank, first + SEEDS_APART * rank, transport == "ray") for rank in range(1, n_learners)]
        kind = OnRay if transport == "ray" else InTurns
        self.fellows: OnRay | InTurns = kind(arguments)
        self.fellows.ask_all("seed_streams")
        self.processes: list[int] = self.fellows.ask_all("describe")
        """Of the fellows."""

    def begin(self, learner: Learner) -> None:
        """Let all be what a learner here is now."""
        self.learner, self._texts = learner, texts_of(learner)
        learner.fellows = learner.group = None
        device = self.fellows.device or str(next(learner.policy.parameters()).device)
        compiles = learner.engine is not None and learner.engine.compiles
        self.fellows.ask_all("take", cloudpickle.dumps(learner), device, compiles)
        self.busy = True
        self.fellows.join(learner, self)
        learner.fellows, self.busy = self, False

    def update(self, batch: Any) -> Update:
        """One gradient step of all, each on its share. -> metrics are means, errors those of all rows in their order"""
        learner, size = self.learner, self.size
        whole = gathered(batch)
        shares = [learner.share(whole, rank, size) for rank in range(size)]
        values = hyperparameters(learner, self._texts)
        others = [(arrays_in(part), values) for part in shares[1:]]
        update, found = self._tried(lambda: learner.update(shares[0]), "update", others)
        return _joined(update, [tensors_in(one) for one in found], whole)

    def call(self, method: str) -> None:
        """Let all call a method without arguments."""
        values = hyperparameters(self.learner, self._texts)
        self._tried(getattr(self.learner, method), "call", [(method, values)] * (self.size - 1))

    def _tried(
        self, here: Callable[[], Result], method: str, others: list[tuple[Any, ...]]
    ) -> tuple[Result, list[Any]]:
        """Do something everywhere; where a fellow dies of it, once more with another one in its place."""
        steps = self.learner.steps
        for _ in range(MOST_ATTEMPTS):
            self.busy = True
            try:
                return self.fellows.together(here, method, others)
            except LostLearnerError as lost:
                warn_user(f"{lost} All learners continue from the one here.", RuntimeWarning)
            finally:
                self.busy = False
            self.learner.steps = steps
            self.restarts += 1
            self.fellows.renew()
            self.fellows.ask_all("seed_streams")
            self.processes = self.fellows.ask_all("describe")
            self.begin(self.learner)
        raise RuntimeError(f"learners died {MOST_ATTEMPTS} times in a row of one gradient step.")

    def close(self) -> None:
        """End the fellows."""
        self.fellows.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy of a model has none until it learns


class _Here:
    """The place in a group of the learner here, which must not use it while the others rest.

    Args:
        group: of all.
        place: in it.
    """

    def __init__(self, group: LearnerGroup, place: Group) -> None:
        self._group, self._place, self.size = group, place, group.size

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._group.busy:
            raise RuntimeError(
                "n_learners: learner.update() was called for this learner alone. Call learner.learn(batch) instead."
            )
        return self._place.sum(tensor)


class LostLearnerError(RuntimeError):
    """A learner's process is gone."""


class OnRay:
    """Fellows in processes on Ray."""

    device = "cpu"

    def __init__(self, arguments: list[tuple[Any, ...]]) -> None:
        self.workers = Workers(LearnerProcess, arguments, PATIENCE)

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """What each answers to the same question."""
        return _checked(self.workers.ask_all(method, *([each_one] * len(self.workers) for each_one in arguments)))

    def join(self, learner: Learner, group: LearnerGroup) -> None:
        """Learn as one."""
        size = len(self.workers) + 1
        store, address = listening(size, PATIENCE), own_address()
        for worker in range(len(self.workers)):
            self.workers.ask(worker, "join", (address, store.port, size, PATIENCE))
        learner.join(_Here(group, SocketGroup(address, store.port, 0, size, PATIENCE, store)))
        self._answers()

    def together(
        self, here: Callable[[], Result], method: str, others: list[tuple[Any, ...]]
    ) -> tuple[Result, list[Any]]:
        """Do something here and there at the same time."""
        for worker, arguments in enumerate(others):
            self.workers.ask(worker, method, *arguments)
        try:
            result = here()
        except RuntimeError as error:  # of the exchange, if a fellow is gone; else it is the program's
            self._answers()
            raise error
        return result, self._answers()

    def _answers(self) -> list[Any]:
        return _checked(self.workers.gather())

    def renew(self) -> None:
        """Make all again: those that live wait for one that does not."""
        for worker in range(len(self.workers)):
            self.workers.renew(worker)

    def close(self) -> None:
        self.workers.stop()


def _checked(answers: list[Any]) -> list[Any]:
    """Answers, none of which is a failure."""
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    for failure in failures:
        if failure.gone:
            raise LostLearnerError("a learner is gone.") from failure.error
    if failures:
        raise failures[0].error
    return answers


class InTurns:
    """Fellows in threads of this process, of which one runs at a time."""

    device = None

    def __init__(self, arguments: list[tuple[Any, ...]]) -> None:
        self._fellows = [LearnerProcess(*each_one) for each_one in arguments]
        self._threads = ThreadPoolExecutor(len(arguments), "polyak-learner")
        self._turns = Turns(len(arguments) + 1)

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """What each answers to the same question."""
        return self.together(lambda: None, method, [arguments] * len(self._fellows))[1]

    def join(self, learner: Learner, group: LearnerGroup) -> None:
        """Learn as one."""
        places = [self._turns.place(rank) for rank in range(self._turns.size)]
        self.together(lambda: learner.join(_Here(group, places[0])), "join", [(place,) for place in places[1:]])

    def together(
        self, here: Callable[[], Result], method: str, others: list[tuple[Any, ...]]
    ) -> tuple[Result, list[Any]]:
        """Do something here and there, in turns."""
        self._turns.begin()
        asked: list[Future[Any]] = [
            self._threads.submit(self._run, rank, method, arguments) for rank, arguments in enumerate(others, 1)
        ]
        try:
            result = here()
        except BaseException:
            self._turns.leave(0, done=True, failed=True)
            self._turns.enter(0)
            self._turns.finish()
            raise
        self._turns.finish()
        return result, [one.result() for one in asked]

    def _run(self, rank: int, method: str, arguments: tuple[Any, ...]) -> Any:
        self._turns.enter(rank)
        failed = True
        try:
            answer = getattr(self._fellows[rank - 1], method)(*arguments)
            failed = False
            return answer
        finally:
            self._turns.leave(rank, done=True, failed=failed)

    def renew(self) -> None:
        """Nothing: none of them is ever gone."""

    def close(self) -> None:
        self._threads.shutdown()


def _joined(here: Update, others: list[Said], whole: Any) -> Update:
    """What one learner would have returned of the whole batch."""
    size = len(others) + 1
    metrics = {
        name: (value + sum(one.metrics[name].to(value.device) for one in others)) / size
        for name, value in here.metrics.items()
    }
    errors = here.td_error
    if errors is not None:
        rows = len(whole.rewards)
        parts = [errors, *(one.td_error.to(errors.device) for one in others if one.td_error is not None)]
        width = -(-rows // size)
        errors = torch.cat([part.reshape(width, -1) for part in parts])[:rows].reshape(-1)
    return Update(metrics, errors, here.skipped)
