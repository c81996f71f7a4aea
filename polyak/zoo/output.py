"""Output: checks of writable paths, and a standard output that may be closed early."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from polyak.warning import printable
from polyak.writing import not_mounted
from polyak.zoo.errors import ZooError


def note(text: str) -> None:
    """Print a message on stderr, so that it does not mix with the output."""
    with suppress(OSError):  # stderr may be closed as well
        print(f"polyak: {printable(text)}", file=sys.stderr)


def writable_file(flag: str, path: str) -> Path:
    """Return `path` if a file can be written there, leaving nothing behind; ZooError naming `flag` and a way out."""
    target = Path(path)
    if target.is_dir():
        raise ZooError(f"{flag} {path!r} is a folder. Give the path of a file in it.")
    if target.exists() and not os.access(target, os.W_OK):
        raise ZooError(f"{flag} {path!r} is write-protected. Give the path of another file.")
    _try_to_write(flag, path, target.absolute().parent)
    return target


def writable_folder(flag: str, path: str) -> Path:
    """Return `path` if files can be written under it, leaving nothing behind; ZooError naming `flag` and a way out."""
    _try_to_write(flag, path, Path(path).absolute())
    return Path(path)


def _try_to_write(flag: str, path: str, folder: Path) -> None:
    """Write in `folder` or, where that is still to be made, in the nearest folder above it."""
    if why := not_mounted(path):
        raise ZooError(f"{flag} {path!r} {why}")
    try:
        nearest = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ZooError(
            f"{flag} {path!r} cannot be written: {error.strerror or error}. Give a path in a folder that you may write "
            "to."
        ) from error


@contextmanager
def outlasting_the_reader(work: str) -> Iterator[None]:
    """Continue when standard output cannot be written any more, with one message on stderr.

    The reader has exited, as in ``polyak train | head``, the terminal was closed, or the disk is full. `work` names the
    continuing work, such as ``"training"``.
    """
    if sys.stdout is None:  # closed before the program began: print writes nothing
        yield
        return
    stream: Any = _Outlasting(sys.stdout, work)
    with redirect_stdout(stream):
        try:
            yield
        finally:
            stream.flush()


class _Outlasting:
    """A text stream that writes to the null device once it cannot be written any more."""

    def __init__(self, stream: Any, work: str) -> None:
        self._stream, self._work, self._is_lost = stream, work, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._discard(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._discard(error)

    def _discard(self, error: OSError) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
        if isinstance(error, BrokenPipeError):
            note(f"the output is not read any more; {self._work} continues without it.")
        else:
            note(
                f"the output cannot be written any more ({error.strerror or error}); {self._work} continues without it."
            )
