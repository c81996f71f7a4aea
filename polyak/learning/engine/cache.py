"""The cache folder for data that depend on the machine only: compiled programs and measurements."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch

from polyak.learning.engine.private_folder import objection, private_folder
from polyak.warning import advise
from polyak.writing import replacing

Fact = TypeVar("Fact")
"""A value that JSON can represent."""


def chosen_folder() -> Path:
    """Returns the configured folder of compiled programs: ``$POLYAK_CACHE``, or ``polyak`` in the user's cache folder."""
    if chosen := os.environ.get("POLYAK_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "polyak" / "programs"


def cache_folder() -> Path:
    """Returns the folder to use: the configured one, or, with a warning, a private one if other users may write to
    that."""
    chosen = chosen_folder()
    reason = objection(chosen)
    return chosen if reason is None else _instead_of(chosen, reason)


def writable(folder: Path) -> Path:
    """Returns a folder, created if necessary, or, with a warning, a private one if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryDirectory(dir=folder).cleanup()
    except OSError as error:
        return _instead_of(folder, f"it cannot be written to ({error.strerror})")
    return folder


def _instead_of(folder: Path, reason: str) -> Path:
    private = private_folder()
    advise(
        f"the cache folder {folder}",
        f"the cache folder {folder} is not used: {reason}. What lies there is loaded and run, so it must be this "
        f"user's and closed to others. Compiled programs are kept in {private} instead. Mend its owner and mode "
        "(chmod go-w), or set POLYAK_CACHE to a folder of your own.",
    )
    return private


def machine() -> tuple[str, ...]:
    """Returns every property that a library or a measurement depends on: system, processor, instruction set, torch."""
    return (
        platform.system(),
        platform.machine(),
        _processor(),
        torch.backends.cpu.get_cpu_capability(),
        torch.__version__,
        str(torch.version.git_version),
    )


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line
    return platform.processor()


def recall(name: str) -> dict[str, Any]:
    """Returns what :func:`store` last wrote under ``name``; empty if nothing readable is there."""
    with suppress(OSError, ValueError):
        known = json.loads((cache_folder() / f"{name}.json").read_text())
        if isinstance(known, dict):
            return known
    return {}


def store(name: str, facts: dict[str, Any]) -> None:
    """Add ``facts`` to those stored under ``name``; an unwritable folder stores nothing."""
    with suppress(OSError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        merged = json.dumps(recall(name) | facts, indent=1, sort_keys=True)
        with replacing(folder / f"{name}.json") as file:
            file.write(merged.encode())


class Measurements:
    """Named measurements of this machine. Each is measured once and stored in a file, so that decisions based on it are
    reproducible.

    The file is read at construction, and again before a measurement, since another process may have written it.

    Args:
        name: name of the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._known = recall(name)

    def of(self, what: str, measure: Callable[[], Fact], sound: Callable[[Any], bool] = lambda fact: True) -> Fact:
        """Returns the stored measurement of ``what``, or measures and stores it.

        Args:
            what: key with everything that the result depends on: home folders may be shared by machines.
            measure: called if no valid measurement is stored.
            sound: whether a stored value is a possible result of ``measure``.
        """
        if not self._knows(what, sound):
            self._known |= recall(self._name)
        if not self._knows(what, sound):
            self._known[what] = measure()
            store(self._name, {what: self._known[what]})
        fact: Fact = self._known[what]
        return fact

    def _knows(self, what: str, sound: Callable[[Any], bool]) -> bool:
        return what in self._known and sound(self._known[what])
