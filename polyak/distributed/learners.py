"""Remote learners that share the gradient steps of the local one, each on its share of the rows.

In a :class:`LearnerGroup` the local learner is one of them and always up to date: it acts, is saved and is resumed as
if it were alone. :class:`LearnersElsewhere` make its steps without it, and update it from time to time. All begin with
a copy of it; since gradients are averaged before each step, they stay equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import torch

from polyak.distributed.exchange import SocketGroup, Turns, listening, own_address
from polyak.distributed.integrity import Integrity, whole
from polyak.distributed.learner_process import (
    Asked,
    Learned,
    LearnerProcess,
    Said,
    arrays_in,
    hyperparameters,
    said_of,
    tensors_in,
    texts_of,
)
from polyak.distributed.placement import Reservation
from polyak.distributed.ray_workers import PATIENCE, Failure, Workers
from polyak.distributed.runner_process import SEEDS_APART
from polyak.distributed.runners import Transport
from polyak.distributed.traffic import Busy
from polyak.distributed.unrolls import RolloutElsewhere, UnrollElsewhere
from polyak.experience.batch import RolloutRows, gathered
from polyak.learning.data_parallel import Group
from polyak.learning.learner import Learner, Update
from polyak.learning.vtrace_learner import Unroll
from polyak.seeding import rng_state, set_rng_state
from polyak.warning import warn_user

Result = TypeVar("Result")
MOST_ATTEMPTS = 3
"""Attempts of one step, if learners die during it."""
BROUGHT_EVERY = 16
"""Number of requests to remote learners after which the local one is updated."""


class LearnerGroup:
    """The local learner and its remote fellows.

    Attributes:
        fetches: whether learners get rollouts as references, which are not read in this process.

    Args:
        n_learners: number of learners, including the local one.
        transport: ``"ray"`` for processes on Ray, ``"local"`` for threads that take turns.
        seed: seed of the model; fellow k draws from the streams of ``seed + 1000 * k``.
        placement: placement of fellows on Ray.

    Raises:
        ImportError: ``polyak[scale]`` is missing.
    """

    fetches = False

    def __init__(
        self, n_learners: int, transport: Transport, seed: int | None, placement: Reservation = Reservation()
    ) -> None:
        self.placement = placement
        self.size, self.restarts, self.busy = n_learners, 0, False
        self.integrity, self.worked = Integrity(), Busy()
        first = int(torch.initial_seed() % 2**31) if seed is None else seed
        self._rollouts = 0
        """Number of rollouts that minibatches were drawn from."""
        self._rollout: tuple[Any, tuple[Any, ...]] = None, ()
        """The latest rollout, and the form in which it is sent to fellows."""
        self.fellows = self._made([(rank, first + SEEDS_APART * rank) for rank in range(n_learners)], transport)
        self.processes: list[int] = self._introduced()
        """Process ids of the fellows."""

    def _introduced(self) -> list[int]:
        """Returns the processes of fellows that have just been made."""
        self.fellows.ask_all("seed_streams")
        return self.fellows.ask_all("describe")

    def _made(self, arguments: list[tuple[int, int]], transport: Transport) -> OnRay | InTurns:
        """Fellows of these ranks and seeds."""
        return OnRay(arguments[1:], placement=self.placement) if transport == "ray" else InTurns(arguments[1:])

    def begin(self, learner: Learner) -> None:
        """Copy the state of the local learner to all fellows."""
        self.learner = learner
        self.recover()
        with self.integrity.changing():
            self._begin(learner)

    def recover(self) -> None:
        """Make all fellows again if an exception has come between a request and its answer: they may wait for a learner
        that does not come."""
        if self.integrity.broken:
            self.forget()
            self._begin(self.learner, "")
            self.integrity.broken = False

    def forget(self) -> None:
        """Discard steps that the local learner lacks: all fellows restart from its state."""

    def _begin(self, learner: Learner, lost: str | None = None) -> None:
        """Copy the state of the local learner to all fellows. If one dies meanwhile, all are replaced.

        Args:
            learner: the local learner.
            lost: replace all fellows first; the message about it, if any.
        """
        for _ in range(MOST_ATTEMPTS):
            try:
                if lost is not None:
                    self._renew(lost)
                self.busy = True
                self._begin_with(learner)
                return
            except LostLearnerError as error:
                lost = str(error)
            finally:
                self.busy = False
        raise RuntimeError(f"learners died {MOST_ATTEMPTS} times in a row before they had begun.")

    def _renew(self, lost: str) -> None:
        if lost:
            warn_user(f"{lost} All learners continue from the one here.", RuntimeWarning)
            self.restarts += 1
        self.fellows.renew()
        self.processes = self._introduced()

    def _begin_with(self, learner: Learner) -> None:
        self._texts = texts_of(learner)
        learner.lead(None)
        learner.group = None
        device = self.fellows.device or str(next(learner.policy.parameters()).device)
        self.fellows.ask_all("take", cloudpickle.dumps(learner), device)
        self.fellows.join(learner, self)
        learner.lead(self)

    @whole
    def update(self, batches: Iterable[Any]) -> list[Update]:
        """Makes a gradient step on each minibatch, each learner on its share, until one is skipped.

        All minibatches are sent to fellows at once, and a rollout with their rows once for all passes over it.

        Returns:
            for each step, the mean metrics and the errors of all rows in order. If a fellow died meanwhile, the steps
            before are those of the local learner, and the errors of the others' rows are the mean size of its own.
        """
        whole, made = self._read(batches), list[Update]()
        own, *others = self._shares(whole)

        def rest(share: list[Any]) -> list[Any]:
            ended = made and made[-1].skipped is not None and bool(made[-1].skipped)
            return [] if ended else share[len(made) :]

        def here() -> None:
            for update in self.learner.updates(rest(own)):
                made.append(update)

        answers = self._tried(here, "update", lambda: self._sent(map(rest, others)), made)
        said = [one for one, _ in answers]
        first = len(made) - (len(said[0].names) if said else 0)
        before = [_alone(update, batch, self.size) for update, batch in zip(made[:first], whole, strict=False)]
        if not said:
            return before
        self.worked.seconds += sum(one.seconds for one in said) / len(said)
        return [*before, *_joined([said_of(made[first:]), *said], whole[first:])]

    def _read(self, batches: Iterable[Any]) -> list[Any]:
        """Minibatches: rows of one rollout, which is sent to fellows, or gathered."""
        given = list(batches)
        rollout = getattr(given[0], "rollout", None) if given else None
        if rollout is not self._rollout[0]:
            self._rollouts += 1
            self._rollout = rollout, () if rollout is None else self._rollout_sent(rollout)
        return [one if rollout is not None and one.rollout is rollout else gathered(one) for one in given]

    def _rollout_sent(self, rollout: Any) -> tuple[Any, ...]:
        """Returns a rollout as it is sent to fellows: references are separate arguments, so that Ray resolves them."""
        if isinstance(rollout, RolloutElsewhere):
            return rollout._replace(weights=None, chunks=()), rollout.weights, *rollout.chunks
        return (self.fellows.put(arrays_in(rollout)),)

    def _shares(self, whole: Sequence[Any]) -> list[list[Any]]:
        """Returns the share of each learner of each minibatch."""
        if self.size == 1:
            return [list(whole)]
        return [[self._share(one, rank) for one in whole] for rank in range(self.size)]

    def _share(self, batch: Any, rank: int) -> Any:
        if isinstance(batch, UnrollElsewhere):
            return batch._replace(share=(rank, self.size))
        return self.learner.share(batch, rank, self.size)

    def _sent(self, shares: Iterable[Sequence[Any]], streams: Any = None) -> list[tuple[Any, ...]]:
        """Returns the arguments of a request to each learner that has shares; the first learner continues from
        ``streams``."""
        values = hyperparameters(self.learner, self._texts)
        number = self._rollouts if self._rollout[1] else -1
        found = []
        for share in filter(None, shares):
            apart: list[Any] = []
            sent = [_as_sent(one, apart) for one in share]
            rollout = self._rollout[1] or (None,) * bool(apart)
            found.append((Asked(sent, number, values, streams), *rollout, *apart))
            streams = None
        return found

    @whole
    def call(self, method: str) -> None:
        """Let all call a method without arguments."""
        values = hyperparameters(self.learner, self._texts)
        self._tried(getattr(self.learner, method), "call", lambda: [(method, values)] * (self.size - 1))

    def _tried(
        self, here: Callable[[], Any], method: str, others: Callable[[], list[tuple[Any, ...]]], made: Sized = ()
    ) -> list[Any]:
        """Returns the fellows' answers. If one dies meanwhile, it is replaced, and all repeat the rest.

        Args:
            here: the work of the local learner meanwhile.
            method: name of the fellows' method.
            others: returns its arguments for each fellow; none if nothing is left to do.
            made: the steps of the request that the local learner has made.
        """
        steps = self.learner.steps
        for attempt in range(MOST_ATTEMPTS):
            self.busy = True
            try:
                if attempt:
                    self._repeat()
                asked = others()
                return self.fellows.together(here, method, asked)[1] if asked else []
            except LostLearnerError as error:
                lost = str(error)
            finally:
                self.busy = False
            self.learner.steps = steps + len(made)
            self._begin(self.learner, lost)
        raise RuntimeError(f"learners died {MOST_ATTEMPTS} times in a row of one gradient step.")

    def _repeat(self) -> None:
        """Let restarted learners repeat the steps that the local learner lacks."""

    def close(self) -> None:
        """End the fellows."""
        self.fellows.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy of a model gets its learners when it learns


def _as_sent(batch: Any, apart: list[Any]) -> Any:
    """Returns a batch as it is sent. References are separate arguments, so that Ray resolves them: they are appended to
    ``apart``, and the batch holds their positions."""
    if not isinstance(batch, UnrollElsewhere):
        return arrays_in(batch.rows if isinstance(batch, RolloutRows) else batch)
    parts: list[Any] = []
    for part in batch.parts:
        if isinstance(part, Unroll):
            parts.append(arrays_in(part))
            continue
        parts.append((len(apart), len(apart) + 1))
        apart += part
    return batch._replace(parts=parts)


class LearnersElsewhere(LearnerGroup):
    """Learners in processes on Ray that make all steps of the local one, which is updated by :meth:`settle` and after
    :data:`BROUGHT_EVERY` requests.

    If one dies, all restart from the state of the local one, and repeat the requests since.

    Args:
        n_learners: number of learners.
        seed: seed of the model; learner k draws from the streams of ``seed + 1000 * k``.
        shares_streams: the first draws from the random streams of this process instead, so that a single one gives the
            results of a local learner.
        device: device of all learners.
        threads: number of threads of each.
        placement: the resources of each, and its node.

    Raises:
        ImportError: ``polyak[scale]`` is missing.
    """

    fetches = True
    explained: float | None = None
    """The share of the variance of returns that values explain, in a rollout that was fetched."""

    def __init__(
        self, n_learners: int, seed: int | None, shares_streams: bool, device: str, threads: int, placement: Reservation
    ) -> None:
        self._shares_streams = shares_streams
        self._device, self._threads = device, threads
        self._since: list[tuple[str, list[tuple[Any, ...]]]] = []
        """The requests since the local learner was last updated."""
        self.fellows: OnRay
        super().__init__(n_learners, "ray", seed, placement)

    def _made(self, arguments: list[tuple[int, int]], transport: Transport) -> OnRay:
        return OnRay(arguments, self._device, self._threads, self.placement, "num_learners")

    @whole
    def update(self, batches: Iterable[Any]) -> list[Update]:
        whole, learner = self._read(batches), self.learner
        streams = rng_state() if self._shares_streams else None
        answers = self._asked("update", self._sent(self._shares(whole), streams))
        if self._shares_streams:
            set_rng_state(*answers[0][1])
        self.explained = answers[0][0].explained
        updates = _joined([said for said, _ in answers], whole)
        learner.steps += len(updates)
        if learner.engine is not None:
            learner.engine.learned = True  # there
        if len(self._since) >= BROUGHT_EVERY:
            self._settle()
        return updates

    @whole
    def call(self, method: str) -> None:
        self._asked("call", [(method, hyperparameters(self.learner, self._texts))] * self.size)

    @whole
    def settle(self) -> None:
        """Update the local learner to the state of the others."""
        self._settle()

    def _settle(self) -> None:
        if self._since:
            learned: Learned = tensors_in(self._asked("state", [(rank == 0,) for rank in range(self.size)])[0])
            self.learner.load_networks(learned.networks)
            for name, state in learned.optimizers.items():
                self.learner.load_optimizer(name, state)
            self._since = []

    def forget(self) -> None:
        self._since = []

    def apply(self, function: Callable[[Learner], Any]) -> list[Any]:
        """Returns the results of a function of each learner."""
        return _checked(self._applied(function))

    @whole
    def _applied(self, function: Callable[[Learner], Any]) -> list[Any]:
        return self.fellows.workers.ask_all("apply", [function] * self.size)

    def _asked(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        self._since.append((method, arguments))
        return self._tried(lambda: None, method, lambda: arguments)

    def _repeat(self) -> None:
        for method, arguments in self._since[:-1]:
            self.fellows.together(lambda: None, method, arguments)


class _Here:
    """The place in a group of the learner here, which must not use it while the others rest.

    Args:
        group: the group of all learners.
        place: the membership of the local learner.
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
    """A learner's process has died."""


class OnRay:
    """Remote fellows in processes on Ray.

    Args:
        arguments: rank and seed of each.
        device: device of all fellows.
        threads: number of threads of each.
        placement: the resources of each, and its node.
        name: name of the setting with their number.
    """

    def __init__(
        self,
        arguments: list[tuple[int, int]],
        device: str = "cpu",
        threads: int = 1,
        placement: Reservation = Reservation(),
        name: str = "n_learners",
    ) -> None:
        self.device = device
        made = [(*one, threads) for one in arguments]
        self.workers = Workers(LearnerProcess, made, PATIENCE, placement=placement, name=name)
        self.put = self.workers.put

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Returns each fellow's answer to the same request."""
        return _checked(self.workers.ask_all(method, *([each_one] * len(self.workers) for each_one in arguments)))

    def join(self, learner: Learner, group: LearnerGroup) -> None:
        """Learn as one: also with the one here where it is of the group."""
        if group.size == 1:
            return
        self._store, address = listening(group.size, PATIENCE), own_address()
        known = address, self._store.port, group.size, PATIENCE, self.device
        for worker in range(len(self.workers)):
            self.workers.ask(worker, "join", known)
        if len(self.workers) == group.size:
            self._answers("join")
            return
        own: Future[None] = Future()

        def here() -> None:
            try:
                learner.join(_Here(group, SocketGroup(0, *known, self._store)))
                own.set_result(None)
            except Exception as error:
                own.set_exception(error)

        Thread(target=here, daemon=True).start()  # nothing ends its wait for a fellow that has died
        self._answers("join")
        own.result()

    def together(
        self, here: Callable[[], Result], method: str, others: list[tuple[Any, ...]]
    ) -> tuple[Result, list[Any]]:
        """Do something here and there at the same time."""
        for worker, arguments in enumerate(others):
            self.workers.ask(worker, method, *arguments)
        try:
            result = here()
        except RuntimeError as error:  # raised by the exchange if a fellow has died; else by the program
            self._answers(method)
            raise error
        return result, self._answers(method)

    def _answers(self, method: str) -> list[Any]:
        return _checked(self.workers.gather(method, as_one=True))

    def renew(self) -> None:
        """Make all again: those that live wait for one that does not."""
        for worker in range(len(self.workers)):
            self.workers.renew(worker)

    def close(self) -> None:
        self.workers.stop()


def _checked(answers: list[Any]) -> list[Any]:
    """Returns the answers, after checking that none is a failure."""
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    for failure in failures:
        if failure.gone:
            raise LostLearnerError("a learner is gone.") from failure.error
    if failures:
        raise failures[0].error
    return answers


class InTurns:
    """Fellows in threads of this process, one of which runs at a time."""

    device = None

    def __init__(self, arguments: list[tuple[int, int]]) -> None:
        self._fellows = [LearnerProcess(*each_one, 0) for each_one in arguments]
        self._start()

    def _start(self) -> None:
        self._threads = ThreadPoolExecutor(len(self._fellows), "polyak-learner")
        self._turns = Turns(len(self._fellows) + 1)

    def put(self, value: Any) -> Any:
        """Returns a value in the form in which it is sent to all."""
        return value

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Returns each fellow's answer to the same request."""
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
            self._turns.finish()
            return result, [one.result() for one in asked]
        except BaseException:
            self._turns.end()
            raise

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
        """Let them wait for another first turn."""
        self.close()
        self._start()

    def close(self) -> None:
        self._turns.end()
        self._threads.shutdown()


def _joined(said: Sequence[Said], whole: Sequence[Any]) -> list[Update]:
    """Returns the updates that one learner would have returned for the whole minibatches."""
    first, updates = said[0], list[Update]()
    means = iter(torch.from_numpy(np.mean([one.metrics for one in said], 0)).unbind())
    for step, names in enumerate(first.names):
        metrics = {name: next(means) for name in names}
        errors = [one.td_errors[step] for one in said]
        updates.append(Update(metrics, None if errors[0] is None else _in_order(errors, len(whole[step].rewards))))
    if first.skipped is not None:
        updates[-1] = updates[-1]._replace(skipped=torch.tensor(first.skipped))
    return updates


def _alone(update: Update, whole: Any, size: int) -> Update:
    """Completes an update of the local learner on its share of a minibatch, for which the others' results were lost."""
    if update.td_error is None:
        return update
    own = update.td_error.numpy(force=True)
    others = [np.full_like(own, np.abs(own).mean())] * (size - 1)
    return update._replace(td_error=_in_order([own, *others], len(whole.rewards)))


def _in_order(errors: Sequence[Any], rows: int) -> torch.Tensor:
    """Errors of all rows in their order, from those of equal shares; of sequences several to each."""
    width = -(-rows // len(errors))
    return torch.from_numpy(np.concatenate([part.reshape(width, -1) for part in errors])[:rows].reshape(-1))
