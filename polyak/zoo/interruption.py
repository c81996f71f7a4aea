"""Requests to stop: Ctrl-C, SIGTERM and SIGUSR1 (which schedulers send some time before they kill), a closed terminal,
or the end of the parent process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from polyak.zoo.output import note

TO_NEXT_STEP = 5.0
"""Seconds that a training gets to reach its next step, where it can be saved exactly."""
PATIENCE = 600.0
"""Seconds that a process has for saving its results after its parent has exited."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, SIGHUP or SIGUSR1, handled like Ctrl-C. Its argument is the signal's number."""


class Stops:
    """Handling of signals that request a program to stop.

    The first raises KeyboardInterrupt (Ctrl-C) or :class:`Terminated`. While the program saves, a second one only
    prints a message, so that a second Ctrl-C, or a scheduler that signals twice, loses nothing. A third one raises.

    Attributes:
        asked: after :meth:`wait_for_step`, the exception that the first signal would have raised; None before it.
    """

    def __init__(self) -> None:
        self._forgives = self._waits = self._saves = False
        self.asked: KeyboardInterrupt | None = None

    def wait_for_step(self) -> None:
        """Only record the first signal from now on: a callback reads it at the next step, and stops there.

        If the program does not do so within `TO_NEXT_STEP` seconds, the signal is sent again, and raises.
        """
        self._waits = True

    def saving(self) -> None:
        """The program starts to save: the next signal does not interrupt it."""
        self._forgives, self._waits, self._saves = True, False, True

    def _remind(self, number: int) -> None:
        if not self._saves:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def answer(self, number: int, frame: Any) -> None:
        """The handler of all these signals."""
        if self._waits:
            self._waits, self.asked = False, KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)
            if hasattr(signal, "pthread_kill"):  # not on Windows
                reminder = threading.Timer(TO_NEXT_STEP, self._remind, (number,))
                reminder.daemon = True
                reminder.start()
            return
        forgiven, self._forgives = self._forgives, not self._forgives
        if forgiven:
            with suppress(RuntimeError):  # the signal arrived in the middle of a line for stderr
                note("already stopping. One more signal ends the program at once, and what is not saved yet is lost.")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise Terminated(number)


def _usual() -> dict[int, Any]:
    """Return the signals that request a program to stop, with Python's handlers of them; none in other threads than the
    main one, which alone receives signals."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        usual |= dict.fromkeys((signal.SIGHUP, signal.SIGUSR1), signal.SIG_DFL)
    return usual


def _leave(number: int, frame: Any) -> None:
    """The handler of a program in which nothing has begun: modules are imported, where an exception may get lost."""
    with suppress(Exception):  # the signal arrived in the middle of a line, or the terminal is closed
        note(f"interrupted by {signal.Signals(number).name} before anything had begun.")
        sys.stdout.flush()
    os._exit(128 + number)


def leave_on_signals() -> None:
    """Let Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP end the program at once, with a line on stderr, until `answered_signals`.

    Signals that the program ignores, or has a handler of its own for, stay as they are.
    """
    for number, handler in _usual().items():
        if signal.getsignal(number) == handler:
            signal.signal(number, _leave)


def usual_signals() -> None:
    """Undo `leave_on_signals`."""
    for number, handler in _usual().items():
        if signal.getsignal(number) == _leave:
            signal.signal(number, handler)


@contextmanager
def answered_signals() -> Iterator[Stops]:
    """Within the block, Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (a terminal that is closed) are handled by :class:`Stops`.

    Within another such block, the :class:`Stops` are that one's. Only the main thread receives signals: in other
    threads, and where a program ignores a signal or has a handler of its own, nothing changes.
    """
    before = {number: signal.getsignal(number) for number in _usual()}
    for handler in before.values():
        if isinstance(stops := getattr(handler, "__self__", None), Stops):
            yield stops
            return
    stops = Stops()
    taken = [number for number, usual in _usual().items() if before[number] in (usual, _leave)]
    for number in taken:
        signal.signal(number, stops.answer)
    try:
        yield stops
    finally:
        for number in taken:
            signal.signal(number, before[number])


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within the block, signals are answered; one that its code lets through ends the program with a line on stderr."""
    with answered_signals():
        try:
            yield
        except KeyboardInterrupt as interrupt:
            note(f"interrupted by {signal.Signals(status_of(interrupt) - 128).name}.")
            raise SystemExit(status_of(interrupt)) from None


def status_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status of a program that was stopped by a signal: 128 plus the number of the signal."""
    number = interrupt.args[0] if isinstance(interrupt, Terminated) and interrupt.args else None
    return 128 + (number or (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT))


def stop_with_the_parent() -> None:
    """Act as on SIGTERM when standard input, whose other end the parent process holds, closes.

    A program that is still running after `PATIENCE` seconds is ended.
    """

    def watch() -> None:
        wait_for_the_parents_end()
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # nothing has been learned yet
            os._exit(128 + signal.SIGTERM)
        if hasattr(signal, "pthread_kill"):  # wakes the main thread even where it waits for something
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        else:
            import _thread

            _thread.interrupt_main(signal.SIGTERM)
        time.sleep(PATIENCE)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="polyak-parent-watch", daemon=True).start()


def wait_for_the_parents_end() -> None:
    """Return when standard input has closed; discard its content."""
    try:
        while os.read(sys.stdin.fileno(), 4096):  # not by sys.stdin, whose lock a waiting thread would hold
            pass
    except OSError:
        pass
