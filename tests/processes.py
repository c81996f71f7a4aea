"""Processes that tests have begun: whether they run, and that they end."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

PATIENCE = 300.0
"""Seconds after which what has not happened is taken never to happen, on a machine that has much else to do."""


def runs(process: int) -> bool:
    """Whether there is such a process, which has not ended; it may end while it is looked at."""
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def assert_gone(processes: Iterable[int]) -> None:
    """Soon."""
    until, left = time.monotonic() + PATIENCE, list(processes)
    while left and time.monotonic() < until:
        left = [process for process in left if runs(process)]
        time.sleep(0.05 if left else 0)
    assert not left, f"still running: {left}"
