"""Entries in the folder of compiled programs: each is a folder that is written elsewhere, sealed and then moved into
place.

A seal lists the digests of an entry's files. An entry without a valid seal is unfinished, damaged or foreign; it is
never loaded (loading an incomplete library can crash the process), and the next entry replaces it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from polyak.learning.engine.private_folder import objection

SEAL = "seal.json"
ABANDONED = 86_400.0
"""Age in seconds at which an unfinished entry is attributed to a killed process."""
_TRIES = 5
_BUILDING = ".building-"


def is_sound(entry: Path) -> bool:
    """Whether an entry is complete and only this user may change it."""
    try:
        if entry.is_symlink() or objection(entry) is not None:
            return False
        digests = json.loads((entry / SEAL).read_text())
        return bool(digests) and all(_is_sealed(entry / Path(name).name, digest) for name, digest in digests.items())
    except (OSError, ValueError, AttributeError):  # missing, or not a seal
        return False


def _is_sealed(file: Path, digest: str) -> bool:
    return not file.is_symlink() and objection(file) is None and _digest(file) == digest


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def unseal(entry: Path) -> None:
    """Remove the seal, so that the next process builds the entry again."""
    with suppress(OSError):
        (entry / SEAL).unlink()


def add(entry: Path, build: Callable[[Path], None]) -> None:
    """Build an entry, unless another process has built it already.

    Args:
        entry: its path; anything unsound there is replaced.
        build: creates a folder at the given path, and files in it.

    Raises:
        Exception: whatever ``build`` raises; then nothing has changed.
        OSError: the folder of the entries cannot be written to.
    """
    _tidy(entry.parent)
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix=_BUILDING, ignore_cleanup_errors=True) as aside:
        made = Path(aside) / "made"
        build(made)
        files = [file for file in made.iterdir() if file.is_file()]
        for path in (made, *files):
            path.chmod(0o700)
        (made / SEAL).write_text(json.dumps({file.name: _digest(file) for file in files}))
        (made / SEAL).chmod(0o600)
        _put(made, entry)


def _put(made: Path, entry: Path) -> None:
    """Move an entry into place, although other processes may do so at the same time."""
    for attempt in range(_TRIES):
        if is_sound(entry):
            return
        with suppress(OSError):  # usually nothing is there
            if not entry.is_symlink() and entry.is_dir():
                entry.chmod(0o700)
            entry.rename(made.parent / f"unsound-{attempt}")
        with suppress(OSError):
            made.rename(entry)
            return
    raise OSError(f"{entry} cannot be replaced: something broken is there that cannot be moved. Delete it.")


def _tidy(folder: Path) -> None:
    """Delete unfinished entries of killed processes."""
    for left in folder.glob(f"{_BUILDING}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
