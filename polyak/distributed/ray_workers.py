"""Processes on Ray. Only this module imports Ray, and only when processes are requested."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np

from polyak.distributed.placement import Reservation, on_leaving_nodes, wait_for_room
from polyak.envs.vec.subproc import EnvTimeoutError
from polyak.warning import warn_user

PATIENCE = 600.0
"""Seconds after which a process that has not answered is replaced."""
SMALL = 2**16
"""Bytes up to which arrays travel with a request."""
HOUR = 3600.0
"""Seconds."""
BETWEEN_LOOKS = 2.0
"""Seconds from one question to Ray which nodes are about to go to the next."""
MOST_RESTARTS = 100
"""Default number of processes of a kind that are replaced within an hour, after which training ends with an error."""


def ray() -> Any:
    """Returns the module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import ray as found
    except ImportError as error:
        raise ImportError(
            "processes on Ray need it (n_runners, n_replay_shards, num_env_runners or num_learners above 0, "
            "crew_class=RayCrew, polyak tune --ray): pip install 'polyak[scale]'"
        ) from error
    return found


def own_node() -> str:
    """Returns the machine that this process is on, with the beginning of Ray's name of the node."""
    found = ray()
    node = f" {found.get_runtime_context().get_node_id()[:8]}" if found.is_initialized() else ""
    return socket.gethostname() + node


_METRICS: dict[str, Any] = {}


def feed(kind: Literal["Gauge", "Counter"], name: str, value: float, **tags: str) -> None:
    """Give one of Ray's own metrics a value: a gauge is set to it, a counter is increased by it."""
    if name not in _METRICS:
        made = getattr(import_module("ray.util.metrics"), kind)
        _METRICS[name] = made(name, description="of a training by polyak", tag_keys=tuple(tags))
    if kind == "Gauge":
        _METRICS[name].set(value, tags)
    elif value > 0:
        _METRICS[name].inc(value, tags)


class _Session:
    """Ray as long as it is used here; one that was there before is left as it is."""

    def __init__(self) -> None:
        self.users, self.ours, self.is_own_machine = 0, False, False
        self.address, self.runtime_env = "", dict[str, Any]()

    def enter(self) -> None:
        """Start it, unless it is there."""
        if self.users == 0 and not ray().is_initialized():
            quiet = {"log_to_driver": False, "logging_level": "error"}
            if address := self.address or os.environ.get("RAY_ADDRESS"):
                ray().init(address, runtime_env=self.runtime_env or None, **quiet)
            else:  # not whatever cluster happens to run on this machine
                ray().init("local", include_dashboard=False, **quiet)
                self.is_own_machine = True
            self.ours = True
        self.users += 1

    def leave(self) -> None:
        """End Ray with its last user, if it was started here."""
        self.users -= 1
        if self.users == 0 and self.ours:
            self.ours = self.is_own_machine = False
            ray().shutdown()


_SESSION = _Session()


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """Ray, connected while the block runs."""
    _SESSION.enter()
    try:
        yield ray()
    finally:
        _SESSION.leave()


def join_cluster(address: str, working_dir: str = "") -> None:
    """Make new processes on a cluster from now on, as ``RAY_ADDRESS`` does.

    Args:
        address: ``"auto"`` for the one that this machine belongs to, ``"HOST:PORT"``, or ``"ray://HOST:PORT"``; ``""``:
            the address in ``RAY_ADDRESS``.
        working_dir: a folder whose modules are copied to all nodes.
    """
    _SESSION.address, _SESSION.runtime_env = address, {"working_dir": working_dir} if working_dir else {}


class LostRowsError(RuntimeError):
    """A value that one process was to fetch from another was lost with it."""


@dataclass(frozen=True)
class Failure:
    """The error in place of a result."""

    error: Exception
    gone: bool
    """Whether the process is: it died, or it or its environments did not answer in time and it was ended."""


@dataclass(frozen=True)
class Tolerance:
    """The failures that training survives."""

    restarts: float = MOST_RESTARTS
    """Number of processes that are replaced :attr:`within` a time."""
    within: float = HOUR
    """Seconds."""
    in_a_row: float = math.inf
    """Number of failures before :attr:`Workers.failures` is reset to 0."""
    delay: float = 0.0
    """Seconds from one replacement of a process to the next."""
    shrinks: bool = False
    """Whether lost processes are not replaced: the others continue."""
    errors: bool = False
    """Whether processes that have raised an error are replaced, too."""
    unmade: bool = False
    """Whether processes whose constructor has raised an error are replaced, too."""
    said: str = ""
    """The place where the user has set these options."""


@dataclass
class _Asked:
    worker: int
    method: str
    since: float
    within: float
    rest: tuple[Any, ...] = ()
    """References to the values that the answer leaves out."""
    is_wanted: bool = True
    """Whether the answer is reported."""


class Workers:
    """Processes on Ray that each hold one object of a class.

    Args:
        cls: a class that can be imported there; it does not depend on Ray.
        arguments: for the constructor of each.
        timeout: seconds after which a process that has not answered is ended.
        tolerance: the failures that :meth:`replace` tolerates.
        placement: the resources of each, and the choice of their nodes.
        name: name of the setting with their number.
        least: number of processes that must have room; the others begin when there is room. ``None``: all.

    Raises:
        HyperparameterError: the cluster has no room for them.
    """

    def __init__(
        self,
        cls: type,
        arguments: Sequence[tuple[Any, ...]],
        timeout: float,
        tolerance: Tolerance = Tolerance(),
        placement: Reservation = Reservation(),
        name: str = "n_runners",
        least: int | None = None,
    ) -> None:
        self.timeout, self.tolerance, self.restarts, self.failures = timeout, tolerance, 0, 0
        self.fitting = len(arguments)
        """Number of processes that have room at first."""
        self.least = self.fitting if least is None else least
        self._looked = -math.inf
        """The last time when Ray was asked for draining nodes."""
        self._first: tuple[str, float] | None = None
        self._lost: set[int] = set()
        self._renewed_at: dict[int, float] = {}
        self._renewals: list[float] = []
        """The recent times when processes were replaced."""
        self._due: dict[int, float] = {}
        self._arguments = list(arguments)
        self._asked: dict[Any, _Asked] = {}
        _SESSION.enter()
        self._group: Any = None
        try:
            self._class = ray().remote(max_restarts=0, **self._reserved(placement, name))(cls)
            self._actors = [self._made(worker) for worker in range(len(self._arguments))]
        except BaseException:
            self._free()
            raise

    def _reserved(self, placement: Reservation, name: str) -> dict[str, Any]:
        """Returns the options of each actor, once there is room for the least number. Ray on this machine alone shares
        its processors."""
        if _SESSION.is_own_machine:
            return {**placement.options(), "num_cpus": 0}
        number = len(self._arguments)
        self.fitting = min(wait_for_room(ray(), placement, self.least, name), number)
        if placement.strategy == "SPREAD" or not placement.bundle:
            return {**placement.options(), "scheduling_strategy": "SPREAD"}
        self._group = ray().util.placement_group([placement.bundle] * number, strategy=placement.strategy)
        return placement.options()

    def _made(self, worker: int) -> Any:
        """Returns a process for a place of the group, if there is one."""
        if self._group is None:
            return self._class.remote(*self._arguments[worker])
        strategies = ray().util.scheduling_strategies
        place = strategies.PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=worker)
        return self._class.options(scheduling_strategy=place).remote(*self._arguments[worker])

    def _free(self) -> None:
        """Reserve nothing any more."""
        if self._group is not None and ray().is_initialized():
            with contextlib.suppress(Exception):  # the cluster has ended
                ray().util.remove_placement_group(self._group)
        _SESSION.leave()

    def __len__(self) -> int:
        return len(self._actors)

    def put(self, value: Any) -> Any:
        """Store a value for many processes. Small arrays are sent with each request: Ray's store costs more."""
        small = isinstance(value, np.ndarray) and value.nbytes <= SMALL
        return value if small else ray().put(value)

    def begin(self, method: str, within: float) -> dict[int, Any]:
        """Returns the first answers, by number, of the processes that have room. The others, and replacements, get the
        same request when they begin.

        Args:
            method: name of the objects' method.
            within: seconds; optional processes have unlimited time.

        Raises:
            Exception: one of them could not be made, or has raised an error.
        """
        self._first = method, within
        for worker in range(len(self)):
            self.ask(worker, method, within=within)
        results: dict[int, Any] = {}
        while len(results) < self.fitting:
            for worker, _, answer in self.answers():
                if isinstance(answer, Failure):
                    raise answer.error
                results[worker] = answer
        return dict(sorted(results.items()))

    def fetch(self, reference: Any) -> Any:
        """Returns the value of a reference."""
        return ray().get(reference)

    def ask(self, worker: int, method: str, *arguments: Any, within: float | None = None, apart: bool = False) -> None:
        """Request a method call of one process; :meth:`answers` returns its result.

        Args:
            worker: number of the process.
            method: name of the object's method.
            arguments: for the method.
            within: seconds; ``None``: the timeout of all. A new process needs some to begin.
            apart: the method returns two values. The second stays in its process: :meth:`answers` has a reference to
                it, for :meth:`fetch` or for another process.
        """
        asked = getattr(self._actors[worker], method)
        reference, *rest = asked.options(num_returns=2).remote(*arguments) if apart else (asked.remote(*arguments),)
        patience = self.timeout if within is None else within
        self._asked[reference] = _Asked(worker, method, time.monotonic(), patience, tuple(rest))

    def waiting_for(self, worker: int) -> int:
        """Returns the number of pending answers of a process."""
        return sum(asked.worker == worker and asked.is_wanted for asked in self._asked.values())

    def answers(self, wait: bool = True) -> list[tuple[int, str, Any]]:
        """Wait for answers: (worker, method, its result or a :class:`Failure`). Answers of one process are in the order
        of its requests. A dead process is reported once, however many requests it had.

        Args:
            wait: ``False``: return only those that are ready.
        """
        found: list[tuple[int, str, Any]] = []
        while not found and any(asked.is_wanted for asked in self._asked.values()):
            ready: Sequence[Any] = []
            if self.has_answer(1.0 if wait else 0.0):
                ready, _ = ray().wait(list(self._asked), num_returns=len(self._asked), timeout=0)
            for reference in self._in_order(ready):
                asked = self._asked.pop(reference, None)
                if asked is None:  # forgotten with the one before it
                    continue
                result = self._result(reference)
                if asked.rest and not isinstance(result, Failure):
                    result = (result, *asked.rest)
                gone = isinstance(result, Failure) and result.gone
                if gone or asked.is_wanted:
                    found.append((asked.worker, asked.method, result))
                if gone:
                    self._forget(asked.worker)
            found += self._overdue()
            if not wait:
                break
        return found

    def disown(self, again: Iterable[int] = ()) -> None:
        """Let processes finish their pending requests, and discard the answers.

        Args:
            again: processes that have yet to begin, which get the first request again.
        """
        for asked in self._asked.values():
            asked.is_wanted = False
        for worker in again:
            if self._first is not None and worker not in self._due and worker not in self._lost:
                self.ask(worker, self._first[0], within=self._first[1])

    def has_answer(self, within: float) -> bool:
        """Wait for one, at most so many seconds. It is not taken: an interruption here loses nothing."""
        ready, _ = ray().wait(list(self._asked), num_returns=1, timeout=within) if self._asked else ([], [])
        return bool(ready)

    def _in_order(self, ready: Sequence[Any]) -> list[Any]:
        """Returns the ready answers without an unready one before them from the same process."""
        here, found, behind = set(ready), [], set()
        for reference, asked in self._asked.items():
            if reference in here and asked.worker not in behind:
                found.append(reference)
            else:
                behind.add(asked.worker)
        return found

    def _result(self, reference: Any) -> Any:
        try:
            return ray().get(reference)
        except ray().exceptions.RayActorError as error:
            return Failure(error, gone=True)
        except Exception as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, ray().exceptions.ObjectLostError):
                return Failure(
                    LostRowsError(f"what another process had made is lost with its node: {cause}"), gone=False
                )
            hangs = isinstance(cause, EnvTimeoutError)
            return Failure(cause if hangs else error, gone=hangs)

    def _overdue(self) -> list[tuple[int, str, Any]]:
        now, found = time.monotonic(), []
        first = None if self._first is None else self._first[0]
        to_come = {asked.worker for asked in self._asked.values() if asked.method == first}
        are_enough = len(self) - len(to_come | self._due.keys() | self._lost) >= self.least
        for reference, asked in list(self._asked.items()):
            if asked.method == first and are_enough:
                continue
            if now - asked.since > asked.within and reference in self._asked:
                error = TimeoutError(f"process {asked.worker + 1} has not answered for {asked.within:g} seconds.")
                found.append((asked.worker, asked.method, Failure(error, gone=True)))
                self.end(asked.worker)
        return found

    def ask_all(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """Returns all processes' answers, in order: the i-th gets the i-th of each of the arguments."""
        for worker in range(len(self)):
            self.ask(worker, method, *(each[worker] for each in arguments))
        return self.gather(method)

    def gather(self, method: str, as_one: bool = False) -> list[Any]:
        """Returns all processes' answers, in order, to a method that was requested of each once.

        Args:
            method: name of the objects' method.
            as_one: if one has died, return its failure alone at once: others may wait for it.
        """
        results: dict[int, Any] = {}
        while len(results) < len(self):
            for worker, asked, result in self.answers():
                gone = isinstance(result, Failure) and result.gone
                if gone and as_one:
                    return [result]
                if gone or asked == method:
                    results[worker] = result
        return [results[worker] for worker in range(len(self))]

    def _forget(self, worker: int) -> None:
        """Drop the pending requests of a process. Errors that it has raised already are read: Ray prints errors that no
        program has read."""
        dropped = [one for one, asked in self._asked.items() if asked.worker == worker]
        if dropped and ray().is_initialized():
            for reference in ray().wait(dropped, num_returns=len(dropped), timeout=0)[0]:
                self._result(reference)
        for reference in dropped:
            del self._asked[reference]

    def end(self, worker: int) -> None:
        """End a process, whatever it is doing, and drop its pending requests."""
        self._forget(worker)
        if ray().is_initialized():  # if not, all processes have ended with it
            with contextlib.suppress(Exception):  # it has ended already
                ray().kill(self._actors[worker], no_restart=True)

    def renew(self, worker: int) -> None:
        """Replace a process that has ended."""
        self.end(worker)
        self.restarts += 1
        self._actors[worker] = self._made(worker)
        self._renewed_at[worker] = time.monotonic()
        if self._first is not None:
            self.ask(worker, self._first[0], within=self._first[1])

    def leaving(self) -> list[int]:
        """Returns the processes on nodes that are being drained; none if Ray was asked a moment ago."""
        if _SESSION.is_own_machine or time.monotonic() < self._looked + BETWEEN_LOOKS:
            return []
        self._looked = time.monotonic()
        return on_leaving_nodes(ray(), self._actors)

    def replace(self, worker: int, failure: Failure, name: str, loss: str) -> None:
        """Replace a process that has failed, at once or when :meth:`renew_due` is called, within the limits of
        :class:`Tolerance`; the warning ends with the sentence ``loss``.

        Raises:
            Exception: the error of a process that has not died.
            RuntimeError: it is not replaced.
        """
        limits, self.failures = self.tolerance, self.failures + 1
        if not (failure.gone or limits.errors):
            raise failure.error
        this, why = f"{name} {worker + 1} of {len(self)}", str(failure.error).strip()
        if getattr(failure.error, "actor_init_failed", False) and not limits.unmade:  # another one would fail alike
            raise RuntimeError(f"{this} could not be made: {why.rpartition(chr(10))[2]}") from failure.error
        self.end(worker)
        known = f"{this} is gone: {why.partition(chr(10))[0] if failure.gone else why}"  # the rest is Ray's advice
        if limits.shrinks:
            self._lost.add(worker)
            if len(self._lost) == len(self):
                raise RuntimeError(f"{known} It was the last one.") from failure.error
            warn_user(f"{known} The others continue.", RuntimeWarning)
            return
        self._renewals = [when for when in self._renewals if time.monotonic() - when < limits.within]
        if len(self._renewals) >= limits.restarts or self.failures > limits.in_a_row:
            span = "in all" if math.isinf(limits.within) else f"within {limits.within:g} seconds"
            most = f"{limits.restarts:g} are {span}, and {limits.in_a_row:g} in a row{limits.said}"
            raise RuntimeError(f"{known} It is not replaced: at most {most}.") from failure.error
        warn_user(f"{known} {loss}", RuntimeWarning)
        self._due[worker] = self._renewed_at.get(worker, -math.inf) + limits.delay
        self.renew_due(wait=False)

    def renew_due(self, wait: bool = True) -> None:
        """Put new ones in the places of those that :meth:`replace` was called for, where the delay is over.

        Args:
            wait: wait for the first, if there are no others.
        """
        while self._due:
            now = time.monotonic()
            for worker in [one for one, when in self._due.items() if when <= now]:
                del self._due[worker]
                self.renew(worker)
                self._renewals.append(now)
            if not wait or len(self._due) < len(self):
                return
            time.sleep(min(0.1, max(min(self._due.values()) - now, 0.0)))

    def stop(self) -> None:
        """End all, and Ray if it was started here and has no other users."""
        for worker in range(len(self)):
            self.end(worker)
        if self._actors:
            self._actors = []
            self._free()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # Ray or the interpreter is at its end
            for worker in range(len(self)):
                self._forget(worker)
