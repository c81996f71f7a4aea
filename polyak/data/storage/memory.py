"""Is there memory for a buffer? Asked before anything is allocated."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

GIGABYTE = 1e9
CLOSE = 0.8  # share of the free memory above which a warning is given


class InsufficientMemoryError(MemoryError):
    """A buffer would not fit into the memory that is free now."""


def available_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes this process can still use: free memory of the machine or of its container, None if neither is known."""
    known = [free for free in (_free_on_machine(), _free_in_container(cgroup)) if free is not None]
    return min(known, default=None)


def _free_on_machine() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except ImportError:
        pass
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _free_in_container(cgroup: Path) -> int | None:
    """Limit minus use of the control group (version 2, then 1); cached files count as free, they can be dropped."""
    for limit, used in (
        (cgroup / "memory.max", cgroup / "memory.current"),
        (cgroup / "memory/memory.limit_in_bytes", cgroup / "memory/memory.usage_in_bytes"),
    ):
        try:
            statistics = dict(line.split()[:2] for line in (used.parent / "memory.stat").read_text().splitlines())
            cached = int(statistics.get("inactive_file", statistics.get("total_inactive_file", 0)))
            return max(int(limit.read_text()) - int(used.read_text()) + cached, 0)
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
    return None


def check_memory(needed: int, what: str, ways_out: str = "") -> None:
    """Refuse an allocation that cannot fit, warn about one that nearly fills the memory.

    Args:
        needed: bytes.
        what: the thing to be allocated, with the arguments that size it; starts the message.
        ways_out: what the user can change.
    Raises:
        InsufficientMemoryError: ``needed`` is more than the free memory.
    """
    free = available_memory()
    if free is None or needed <= CLOSE * free:
        return
    figures = f"{what} needs {needed / GIGABYTE:.2f} GB and {free / GIGABYTE:.2f} GB of memory is free."
    if needed > free:
        raise InsufficientMemoryError(f"{figures} {ways_out}".strip())
    warnings.warn(f"{figures} That is close: the machine may run out of memory once it is full. {ways_out}".strip())
