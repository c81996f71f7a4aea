"""Checks that a buffer fits into memory before it is allocated, and memory in a temporary file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from polyak.warning import warn_user

GIGABYTE = 1e9
CLOSE = 0.8  # share of the free memory above which a warning is given
_REFUSES = ContextVar("polyak_refuses_overcommit", default=True)


class InsufficientMemoryError(MemoryError, ValueError):
    """A buffer would not fit into the free memory."""


def available_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Returns the bytes this process can still use: free memory of the machine, of its container, or under the
    process's own limits (``ulimit``); None if none is known."""
    found = (_free_on_machine(), _free_in_container(cgroup), _free_under_limits())
    known = [free for free in found if free is not None]
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
    except OSError:  # neither psutil nor Linux
        pass
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


def _free_under_limits() -> int | None:
    """Returns the bytes the process may still allocate, if it is limited (``ulimit -v``, ``ulimit -d``)."""
    try:
        import resource
    except ImportError:  # not on this system
        return None
    limits = {"VmSize:": resource.RLIMIT_AS, "VmData:": resource.RLIMIT_DATA}
    limited = {name: resource.getrlimit(kind)[0] for name, kind in limits.items()}
    limited = {name: most for name, most in limited.items() if most != resource.RLIM_INFINITY}
    if not limited:
        return None
    try:
        lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    except OSError:
        return min(limited.values())
    return min(max(limited[line[0]] - int(line[1]) * 1024, 0) for line in lines if line and line[0] in limited)


def zeros(shape: Any, dtype: Any, on_disk: bool = False) -> np.ndarray:
    """An array of zeros: in memory, or in a temporary file that the operating system keeps in memory as far as it fits.

    The file is where temporary files go (``TMPDIR``). It has no name, and vanishes with the array, or with the process.

    Raises:
        InsufficientMemoryError: there is no room for it.
    """
    needed = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not on_disk:
        try:
            return np.zeros(shape, dtype)
        except MemoryError as error:
            raise InsufficientMemoryError(
                f"The system gives no {needed / GIGABYTE:.2f} GB of memory. Use a smaller buffer_size."
            ) from error
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InsufficientMemoryError(
            f"A temporary file of {needed / GIGABYTE:.2f} GB does not fit into {folder}, which has "
            f"{free / GIGABYTE:.2f} GB free. Point the environment variable TMPDIR to a folder with more room."
        )
    with tempfile.TemporaryFile(prefix="polyak-replay-") as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, not a crash at some write
            os.posix_fallocate(file.fileno(), 0, max(needed, 1))
        return np.asarray(np.memmap(file, dtype, "r+" if hasattr(os, "posix_fallocate") else "w+", 0, shape))


@contextmanager
def overcommitted() -> Iterator[None]:
    """Lets :func:`check_memory` warn instead of refusing within the block: memory that is never written to takes no
    room."""
    token = _REFUSES.set(False)
    try:
        yield
    finally:
        _REFUSES.reset(token)


def check_memory(needed: int, what: str, ways_out: str = "") -> None:
    """Refuse an allocation that cannot fit, warn about one that nearly fills the memory.

    Args:
        needed: bytes.
        what: the thing to be allocated, with the arguments that size it; starts the message.
        ways_out: the options that the user can change.
    Raises:
        InsufficientMemoryError: ``needed`` is more than the free memory, outside of :func:`overcommitted`.
    """
    free = available_memory()
    if free is None or needed <= CLOSE * free:
        return
    figures = f"{what} needs {needed / GIGABYTE:.2f} GB and {free / GIGABYTE:.2f} GB of memory is free."
    if needed > free and _REFUSES.get():
        raise InsufficientMemoryError(f"{figures} {ways_out}".strip())
    outlook = "That is close" if needed <= free else "It would not fit"
    warn_user(f"{figures} {outlook}: the machine may run out of memory once it is full. {ways_out}".strip())
