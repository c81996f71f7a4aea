"""Work that pauses in the middle: several trainings continue in turn, so that they are compared at the same step."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import torch

from polyak.seeding import alternating, rng_state, set_rng_state

Value = TypeVar("Value")


class Paused(Generic[Value]):
    """Work in its own thread, which never runs at the same time as the thread that resumes it.

    A training cannot be suspended in the middle of a rollout from outside; in a thread it just waits. While the work
    runs, the global random generators have its own state, so that it draws the same numbers as alone.

    Args:
        work: called with this object; it calls `pause` and, in loops between two pauses, reads `stopped`.
    """

    def __init__(self, work: Callable[[Paused[Value]], None]) -> None:
        self._work = work
        self._answers: SimpleQueue[bool] = SimpleQueue()
        self._events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._n_threads = torch.get_num_threads()
        # chosen_threads() uses a context variable; a thread begins with an empty context
        self._thread = Thread(target=contextvars.copy_context().run, args=(self._run,), daemon=True)
        self.over = False
        self.stopped = False
        """Whether the work was requested to end."""

    def resume(self, proceed: bool = True) -> Value | None:
        """Let the work run until its next pause; returns the value of that pause, None when the work is over.

        Raises:
            Exception: the one that the work ended with.
        """
        if self.over:
            return None
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._answers.put(proceed)
        kind, value = self._events.get()
        self.over = kind != "pause"
        if kind == "error":
            raise value
        return value

    def close(self) -> None:
        """End the work, where it pauses or at its next look at `stopped`, and wait for it."""
        self.stopped = True
        if self._thread.ident is not None:
            self._answers.put(False)
            self._thread.join()
        self.over = True

    def _run(self) -> None:
        torch.set_num_threads(self._n_threads)
        try:
            with alternating():
                self._work(self)
        except BaseException as error:
            self._events.put(("error", error))
        else:
            self._events.put(("end", None))

    def pause(self, value: Value) -> bool:
        """Pass a value from the work, and wait. Returns whether to continue."""
        if self.stopped:
            return False
        state = rng_state()
        self._events.put(("pause", value))
        proceed = self._answers.get()
        set_rng_state(*state)
        return proceed
