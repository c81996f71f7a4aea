"""Files and folders that appear under their names only when they are whole, and stay so through a power cut.

Until then they have a name with a dot before it, and their machine and process in it, such as
``.model.zip.ada_f3c1-4711-9d0c52aa.partial``. What killed processes have left is deleted when something is written
beside it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

ABANDONED = 24 * 3600.0
"""Seconds after which what a process of another machine has not written to any more is taken for left behind."""
_LEFT = re.compile(r"\..*\.([^.]*)-(\d+)-[0-9a-f]+\.partial", re.DOTALL)
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")
"""A path has lost one of its slashes."""
_REFUSALS = {errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, getattr(errno, "EDQUOT", -1)}
_ours: set[str] = set()
"""Names of what this process is writing."""


@contextmanager
def naming(path: str | os.PathLike[str], argument: str = "path") -> Iterator[None]:
    """Convert what the system says of a file or folder that cannot be made to an error that names it.

    Args:
        path: the file or folder that is made within the block.
        argument: what the user gave it as.

    Raises:
        OSError: of the class that the system's error has, with the argument, its value, the reason and the fix.
        ValueError: no file can have that name, or it is a URL.
    """
    if why := not_mounted(path):
        raise ValueError(f"{argument}={str(path)!r} {why}")
    try:
        yield
    except (OSError, ValueError) as error:
        kind = type(error) if isinstance(error, OSError) else ValueError
        raise kind(
            f"{argument}={str(path)!r} cannot be written: {_reason(Path(path), error)}. Name a place in a folder that "
            "exists or can be made, and that you may write to."
        ) from error


def not_mounted(path: str | os.PathLike[str]) -> str:
    """Why nothing can be written to a URL such as ``s3://bucket/logs``, which would be a folder ``s3:`` here; empty of
    a path."""
    if not _URL.match(str(path)) or os.path.isdir(Path(path).parts[0]):
        return ""
    return (
        "is a URL, and files are written to folders: under another name first, and renamed when they are whole. Give "
        "the path of a folder, of a shared or mounted one (NFS, s3fs, gcsfuse) where several machines are to see it."
    )


def make_folder(
    folder: str | os.PathLike[str], argument: str = "path", named: str | os.PathLike[str] | None = None
) -> None:
    """Make a folder, with those above it, unless it is there; errors as of :func:`naming`, of the file that it is for
    where that is ``named``."""
    with naming(folder if named is None else named, argument):
        os.makedirs(folder, exist_ok=True)


def _reason(path: Path, error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    there = next((place for place in (path, *path.parents) if os.path.lexists(place)), path)
    if isinstance(error, FileExistsError | NotADirectoryError) and not there.is_dir():
        return f"{str(there)!r} is a file, not a folder"
    if isinstance(error, IsADirectoryError):
        return f"{str(there)!r} is a folder"
    return f"{str(error.strerror).lower()} in {str(there)!r}"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` only when the block has ended without an error.

    Raises:
        OSError: it cannot be written; the message names the file, and says whether there is an earlier one.
    """
    with unfinished(path, in_folder=False) as at, at.open("wb") as file:
        yield file


@contextmanager
def unfinished(path: Path, in_folder: bool = True) -> Iterator[Path]:
    """A path to write a file or a folder to, which takes the name ``path`` when the block has ended without an error.

    Args:
        path: a file there is replaced; missing folders above it are made.
        in_folder: with the same name in a folder of its own, for writers that read its suffix.

    Raises:
        FileExistsError: there is a folder of that name.
        OSError: as :func:`replacing`.
    """
    begun = None
    try:
        begun = Unfinished(path, in_folder)
        yield begun.at
        begun.finish()
    except BaseException as error:
        if begun is not None:
            begun.drop()
        if (named := _named(error, path)) is not None:
            raise named from error
        raise


class Unfinished:
    """A file or a folder that is being written.

    Args:
        path: of what it becomes.
        in_folder: see :func:`unfinished`.

    Attributes:
        at: where to write it.

    Raises:
        FileExistsError: there is a folder of that name.
    """

    def __init__(self, path: Path, in_folder: bool = True) -> None:
        if path.is_dir():
            raise FileExistsError(f"path={str(path)!r} is a folder already: delete it, or give another path.")
        make_folder(path.parent, named=path)
        delete_left(path.parent)
        name = f".{path.name[:40]}.{_place()}-{os.getpid()}-{secrets.token_hex(4)}.partial"
        self.path, self._beside = path, path.with_name(name)
        self.at = self._beside / path.name if in_folder else self._beside
        _ours.add(name)
        with naming(path):
            self._beside.mkdir(mode=0o700) if in_folder else self._beside.touch(mode=0o666, exist_ok=False)

    def finish(self) -> None:
        """Give it its name, once the disk has it."""
        for file in [file for file in self.at.rglob("*") if file.is_file()] if self.at.is_dir() else [self.at]:
            with file.open("rb+") as written:
                os.fsync(written.fileno())
        os.replace(self.at, self.path)
        with suppress(OSError):  # not every system has this for folders
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self.drop()

    def drop(self) -> None:
        """Delete what there is beside the file."""
        _delete(self._beside)
        _ours.discard(self._beside.name)


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True) if not path.is_dir() else shutil.rmtree(path)


def _place() -> str:
    """This machine; within it the container, whose processes are counted apart."""
    name = re.sub(r"\W", "_", socket.gethostname(), flags=re.ASCII)[:40]
    with suppress(OSError):
        return f"{name}_{os.stat('/proc/self/ns/pid').st_ino:x}"
    return name


def delete_left(folder: Path) -> None:
    """Delete what killed processes have left half-written in a folder."""
    for entry in os.scandir(folder):
        if (found := _LEFT.fullmatch(entry.name)) and _is_left(entry.name, found[1], int(found[2]), folder):
            _delete(folder / entry.name)


def _is_left(name: str, place: str, process: int, folder: Path) -> bool:
    if place != _place():
        with suppress(OSError):
            parts = [folder / name, *(folder / name).rglob("*")]
            return time.time() - max(part.stat().st_mtime for part in parts) > ABANDONED
        return False
    return name not in _ours if process == os.getpid() else not is_running(process)


def is_running(process: int) -> bool:
    """Whether there is a process of this machine."""
    if sys.platform == "win32":
        import ctypes

        handle = ctypes.windll.kernel32.OpenProcess(0x1000, False, process)  # PROCESS_QUERY_LIMITED_INFORMATION
        return bool(handle and ctypes.windll.kernel32.CloseHandle(handle))
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


def _named(error: BaseException, path: Path) -> OSError | None:
    """An error in writing with the name of the file; ``None``: it is about something else."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    about = path if error.filename is None else Path(str(error.filename))
    if about not in path.parents and path.parent not in (about, *about.parents):
        return None
    earlier = ", and the earlier one of that name is still there" if os.path.exists(path) else ""
    return OSError(error.errno, f"{error.strerror}; it was not written{earlier}", str(path))
