"""Self-play in several processes, for one learner.

All processes make a move in each of their games at the same time, with the learner's weights at the time of the
request, and make the next move during the learner's gradient steps. So the weights are always exactly one round old,
and equal seeds give equal games, whatever the speed of the processes.

Weights are sent when their version has changed; positions are sent when their games have ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

import cloudpickle
import numpy as np

from polyak.algorithms.search.self_play import Ended, SelfPlay
from polyak.arrays import under
from polyak.checkpoint.may_be_named import MayBeNamed
from polyak.envs.vec.env_worker import WorkerError, end_with_parent, seed_process
from polyak.envs.vec.sending import main_imported_if_possible

Weights = Sequence[np.ndarray]
UNGUARDED_MAIN = 77
"""Exit code of a process that would start others while it imports the script."""
_PATIENCE = 10.0
"""Seconds that processes have to exit by themselves."""
_RANDOM = "keys", "place", "has_normal", "normal"
"""Parts of the state of numpy's generator, after its name."""


class PlayerError(RuntimeError):
    """Raised if a self-play process raises an error or dies. The message has its traceback."""


class Player(NamedTuple):
    """The games of one process."""

    games: SelfPlay
    take: Callable[[Weights], None]
    """Loads these weights."""


Job = tuple[Callable[[int], Player], int, int]
"""Factory of a player, its number of games, and the seed of its process."""


class Worker(Protocol):
    """The learner's interface to one process."""

    @property
    def is_sound(self) -> bool:
        """Whether its next answer belongs to the last request."""

    def ask(self, what: str, argument: Any) -> None:
        """Send a request: see :meth:`Seat.answer`."""

    def answer(self) -> Any:
        """Returns the answer to the last request.

        Raises:
            PlayerError: the process raised an error, or died.
        """

    def dismiss(self) -> None:
        """Request that it ends."""

    def end(self) -> None:
        """Wait until it has ended, or kill it."""


class Crew(MayBeNamed):
    """Self-play processes on this machine, with the interface of :class:`~polyak.algorithms.search.self_play.SelfPlay`.

    They run from :meth:`start` to :meth:`rest`, and no longer than the process that started them. A worker process
    imports the script again, so the code that starts them must be guarded by ``if __name__ == "__main__":``.

    Args:
        make: creates the player of a number of games; sent to the processes with cloudpickle.
        n_games: of all processes together.
        n_workers: number of processes, at most one per game.
        weights: takes a version and returns the learner's present version, and its weights unless the versions are
            equal.
        seeds: of the processes' generators, one each.
    """

    def __init__(
        self,
        make: Callable[[int], Player],
        n_games: int,
        n_workers: int,
        weights: Callable[[int | None], tuple[int, Weights | None]],
        seeds: Sequence[int] | np.ndarray,
    ) -> None:
        self._weights = weights
        bounds = np.linspace(0, n_games, n_workers + 1).astype(int)
        self._jobs: list[Job] = [(make, int(n), int(seed)) for n, seed in zip(np.diff(bounds), seeds, strict=True)]
        self._workers: list[Worker] = []
        self._states: list[dict[str, np.ndarray]] = [{} for _ in self._jobs]
        self._ready: Ended | None = None
        self._asked_at: int | None = None
        self._sent_at: int | None = None
        self._made_at: int | None = None
        self._asking = False
        self.lag = 0
        """Number of versions by which the weights of the last move were behind the learner's."""

    # -- playing -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the processes, which continue their games."""
        self._sent_at = self._asked_at = None
        try:
            for worker in self._hire():
                self._workers.append(worker)
            self._ask_all("load_state", self._states)
        except BaseException:
            self._end()
            raise

    def _hire(self) -> Iterator[Worker]:
        """Start one process for each job."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            os._exit(UNGUARDED_MAIN)
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        for number, job in enumerate(self._jobs):
            yield _Process(context, number, job)

    def _sent(self, weights: Weights) -> Any:
        """Returns the form in which weights are sent to all processes."""
        return weights

    def move(self) -> Ended:
        """Make a move in every game.

        Raises:
            PlayerError: a process raised an error or died; all have been ended.
        """
        try:
            if self._ready is None:
                self._ask()
                self._collect()
            assert self._ready is not None
            ended, self._ready = self._ready, None
            self._ask()  # the next move is made during the learner's gradient steps
        except Exception:
            self._end()
            raise
        return ended

    def _ask(self) -> None:
        if self._asked_at is not None:
            return
        (version, weights), self._asking = self._weights(self._sent_at), True
        self.lag = version - self._made_at if self._made_at is not None else 0
        argument = None if weights is None else self._sent(weights)
        for worker in self._workers:
            worker.ask("move", argument)
        self._asked_at = self._sent_at = version
        self._asking = False

    def _collect(self) -> None:
        assert self._asked_at is not None
        ends = [worker.answer() for worker in self._workers]
        self._made_at, self._asked_at = self._asked_at, None
        self._ready = Ended(*(np.concatenate(parts) for parts in zip(*ends, strict=True)))

    def _ask_all(self, what: str, arguments: Sequence[Any]) -> list[Any]:
        for worker, argument in zip(self._workers, arguments, strict=True):
            worker.ask(what, argument)
        return [worker.answer() for worker in self._workers]

    # -- stopping ------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Finish the current move, keep the state of the games, and end the processes.

        Games are lost, and start again, if a process has failed or was interrupted in the middle of an answer.
        """
        workers = self._workers
        if not workers:
            return
        self._states = [{} for _ in self._jobs]
        try:
            if not self._asking and all(worker.is_sound for worker in workers):
                with suppress(PlayerError):
                    self._states = self._settled()
        finally:
            self._end()

    def _settled(self) -> list[dict[str, np.ndarray]]:
        """Returns the states of the processes, after the current move."""
        if self._asked_at is not None:
            self._collect()
        return self._ask_all("state", [None] * len(self._workers))

    def _end(self) -> None:
        """End all processes."""
        workers, self._workers = self._workers, []
        self._asked_at = self._sent_at = None
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.end()

    # -- as arrays -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything that is needed to resume."""
        if self._workers:
            self._states = self._settled()
        ready = {} if self._ready is None else {f"ready/{name}": a for name, a in self._ready._asdict().items()}
        return ready | {f"{i}/{name}": a for i, state in enumerate(self._states) for name, a in state.items()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ValueError: the state belongs to another number of processes.
        """
        owners = {name.partition("/")[0] for name in state} - {"ready"}
        if owners != {str(i) for i in range(len(self._jobs))}:
            raise ValueError(
                f"n_workers={len(self._jobs)}: the games in progress of the file were not played by as many processes. "
                "Load it with the n_workers that it was saved with, or begin new games: force_reset=True."
            )
        copies = {name: np.array(array) for name, array in state.items()}
        self._states = [under(str(i), copies) for i in range(len(self._jobs))]
        self._ready = Ended(**ready) if (ready := under("ready", copies)) else None


class _Process:
    """A :class:`Worker` whose process is a child of this one."""

    def __init__(self, context: Any, number: int, job: Job) -> None:
        self.number, self._awaited, self._talking, self._failed = number, False, False, False
        self._last: Any = None
        self._connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=serve, args=(theirs, cloudpickle.dumps(job)), name=f"polyak-player-{number}", daemon=True
        )
        with main_imported_if_possible():
            self._process.start()
        theirs.close()

    @property
    def is_sound(self) -> bool:
        return not (self._talking or self._failed)

    def ask(self, what: str, argument: Any) -> None:
        self._talking = True
        try:
            self._connection.send((what, argument))
        except OSError:
            raise self._died() from None
        self._talking, self._awaited = False, True

    def answer(self) -> Any:
        if not self._awaited:
            return self._last
        while not self._connection.poll(1.0):
            pass  # a process that dies closes its end, which counts as an answer
        self._talking = True
        try:
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        self._last, self._talking, self._awaited = answer, False, False
        if isinstance(answer, WorkerError):
            self._failed = True
            raise raised(self.number, answer)
        return answer

    def _died(self) -> PlayerError:
        self._failed = True
        self._process.join(1.0)
        code = self._process.exitcode
        if code == UNGUARDED_MAIN:
            return PlayerError(
                "the script starts learning at its top level, which the processes that play import: put "
                "`model.learn(...)` under `if __name__ == '__main__':`, or use n_workers=0."
            )
        hint = (
            " The system kills processes like this when memory runs out."
            if code == -getattr(signal, "SIGKILL", 9)
            else ""
        )
        return PlayerError(f"process {self.number} of those that play died (exit code {code}).{hint}")

    def dismiss(self) -> None:
        if self._failed or self._talking:
            self._process.terminate()
        with suppress(OSError):
            self._connection.close()

    def end(self) -> None:
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def raised(number: int, failure: WorkerError) -> PlayerError:
    """Returns the error for an exception in a process."""
    return PlayerError(
        f"process {number} of those that play raised {failure.doing}: {failure.summary.splitlines()[0]}"
        f"\n\n--- traceback of the process ---\n{failure.text}"
    )


# -- in the process ----------------------------------------------------------------------------------------------------


def serve(connection: Connection, job: bytes) -> None:
    """Serve requests until the other end is closed: the main function of a process."""
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches all processes; the learner's decides
    end_with_parent()
    seat = Seat(job)
    while True:
        try:
            what, argument = connection.recv()
        except (EOFError, OSError):
            return
        answer = seat.answer(what, argument)
        try:
            connection.send(answer)
        except OSError:
            return


class Seat:
    """The process's side of the connection.

    Args:
        job: a :data:`Job`, pickled by cloudpickle. The player is created at the first request.
    """

    def __init__(self, job: bytes) -> None:
        self._job = job
        self._player: Player | None = None

    def answer(self, what: str, argument: Any) -> Any:
        """Serve a request.

        Args:
            what: ``"move"``, ``"state"`` or ``"load_state"``.
            argument: for ``"move"``, the weights to use unless they are known; for ``"load_state"``, the result of
                ``"state"``.

        Returns:
            the result, or a :class:`~polyak.envs.vec.env_worker.WorkerError`.
        """
        try:
            if self._player is None:
                make, n_games, seed = cloudpickle.loads(self._job)
                seed_process(seed)
                np.random.seed(seed)
                self._player = make(n_games)
            return _done(self._player, what, argument)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            return WorkerError.of(error, None, f"in {what}()")


def _done(player: Player, what: str, argument: Any) -> Any:
    if what == "move":
        if argument is not None:
            player.take(argument)
        return player.games.move()
    if what == "state":
        state: Any = np.random.get_state(legacy=True)
        random = map(np.array, state[1:])
        return {**player.games.state(), **dict(zip((f"random/{name}" for name in _RANDOM), random, strict=True))}
    if argument:
        keys, *numbers = (argument[f"random/{name}"] for name in _RANDOM)
        np.random.set_state(("MT19937", keys, *(number.item() for number in numbers)))
        games = {name: array for name, array in argument.items() if not name.startswith("random/")}
        if games:
            player.games.load_state(games)
    return None
