"""Being asked to stop: by Ctrl-C, or by SIGTERM, which schedulers send some seconds before they kill."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what Ctrl-C does is to be done."""


@contextmanager
def heeding_sigterm() -> Iterator[None]:
    """Raise `Terminated` when SIGTERM comes for the first time; a second one ends the program at once.

    Only the main thread of a program hears signals: elsewhere, and where a program has its own way with SIGTERM,
    nothing changes.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def heed(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, heed)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def status_of(interrupt: KeyboardInterrupt) -> int:
    """Exit status of a program that was asked to stop: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)
