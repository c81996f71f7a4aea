"""A limit to the time that environments take, in the process that has them."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, cast

from polyak.envs.vec.subproc import EnvTimeoutError

_SIGNAL: Any = getattr(signal, "SIGVTALRM", None)
"""The signal by which the watching thread reaches the stepping one, also in a system call. Windows has none."""
_LOOKS = 20
"""Number of checks within the limit."""


class HangWatch:
    """Raises an error in this thread if environments take too long.

    Code that never returns to the interpreter cannot be interrupted: the process ends after twice the limit.

    Args:
        limit: seconds for one step, reset or call.
        name: name of the owner of the environments, for messages.
    """

    def __init__(self, limit: float, name: str) -> None:
        self.limit, self.name = limit, name
        self._since: float | None = None
        self._doing = ""
        self._thread = threading.get_ident()
        self._interrupts = _SIGNAL is not None and threading.current_thread() is threading.main_thread()
        if self._interrupts:
            signal.signal(_SIGNAL, self._interrupt)
        threading.Thread(target=self._look, name="polyak-environment-watch", daemon=True).start()

    @contextmanager
    def over(self, doing: str) -> Iterator[None]:
        """Watch the environments while the block runs."""
        self._doing, self._since = doing, time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def restart(self) -> None:
        """Restart the limit, after one of several operations in a block."""
        self._since = time.monotonic()

    @property
    def _is_over(self) -> bool:
        since = self._since
        return since is not None and time.monotonic() - since > self.limit

    def _look(self) -> None:
        while True:
            if not self._is_over:
                with suppress(Exception):  # there is no standard error to write to
                    faulthandler.dump_traceback_later(2 * self.limit, exit=True, file=cast(Any, sys.__stderr__))
            elif self._interrupts:
                signal.pthread_kill(self._thread, _SIGNAL)
            time.sleep(self.limit / _LOOKS)

    def _interrupt(self, number: int, frame: FrameType | None) -> Any:
        if self._is_over:  # not if it has ended meanwhile
            self._since = time.monotonic()  # whatever catches this has as long again
            raise EnvTimeoutError(
                f"the environments of {self.name} gave no answer to {self._doing} within runner_timeout={self.limit:g} "
                "seconds, and the runner was ended. Raise runner_timeout (None waits for ever) if they are only slow."
            )
