"""What files made to do harm may take: how much memory a process has, and an end of what never ends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any


class Late(BaseException):
    """Time is up."""


def late(*_: Any) -> None:
    """For a signal."""
    raise Late


def status(key: str) -> int:
    """A line of /proc/self/status in bytes; 0 where there is none."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)
    return 0


def forget_peak() -> None:
    """``VmHWM`` begins again."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
