"""How worker processes are started: stop signals are left to the parent, and no sockets are left behind."""

from __future__ import annotations

import multiprocessing.process
import multiprocessing.util
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from polyak.writing import is_running

_ASKED = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]
"""Signals that request a program to stop. Terminals and schedulers send them to all of its processes."""
_SOCKETS = "polyak-workers"


@contextmanager
def away_from_signals() -> Iterator[None]:
    """Processes that are started within the block, and those that they start, are not ended by these signals.

    Each worker calls :func:`leave_to_parent`; the server that forks workers only waits for the parent's end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """Let a worker ignore these signals: the parent handles them.

    They get handlers, because programs that an environment starts would inherit ignored or blocked signals.
    """
    for number in _ASKED:
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)


def use_own_sockets() -> None:
    """Let multiprocessing keep its sockets in a folder named after this process, and delete those that killed processes
    of this user have left."""
    current: Any = multiprocessing.process.current_process()
    if current._config.get("tempdir") is not None:  # it has one
        return
    above, place = Path(tempfile.gettempdir()), 0
    with suppress(OSError):
        place = os.stat("/proc/self/ns/pid").st_ino  # numbers of processes are those of a container
    for left in above.glob(f"{_SOCKETS}-{place:x}-*"):
        owner = left.name.split("-")[3]
        if owner.isdecimal() and not is_running(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"{_SOCKETS}-{place:x}-{os.getpid()}-")
    multiprocessing.util.Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=-100)
    current._config["tempdir"] = folder
