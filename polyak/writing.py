"""Atomic writing of files and folders: they appear under their names only when they are complete and on disk.

Until then their name starts with a dot and contains machine and process, such as
``.model.zip.ada_f3c1-4711-9d0c52aa.partial``. Leftovers of killed processes are deleted when something is written
beside them.
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
"""Seconds without a write after which an unfinished file of another machine is considered abandoned."""
_LEFT = re.compile(r"\..*\.([^.]*)-(\d+)-[0-9a-f]+\.partial", re.DOTALL)
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")
"""A URL in a path, which may have lost one of its slashes."""
_REFUSALS = {errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, getattr(errno, "EDQUOT", -1)}
_ours: set[str] = set()
"""Names of the files that this process is writing."""


@contextmanager
def naming(path: str | os.PathLike[str], argument: str = "path") -> Iterator[None]:
    """Convert system errors of creating a file or folder to an error that names it.

    Args:
        path: the file or folder that is created within the block.
        argument: the name of the user's argument.

    Raises:
        OSError: of the same class as the system's error, with the argument, its value, the reason and the fix.
        ValueError: the name is invalid, or a URL.
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
    """Returns the reason why nothing can be written to a URL such as ``s3://bucket/logs``, which would create a local
    folder ``s3:``; empty for a path."""
    if not _URL.match(str(path)) or os.path.isdir(Path(path).parts[0]):
        return ""
    return (
        "is a URL, and files are written to folders: under another name first, and renamed when they are whole. Give "
        "the path of a folder, of a shared or mounted one (NFS, s3fs, gcsfuse) where several machines are to see it."
    )


def make_folder(
    folder: str | os.PathLike[str], argument: str = "path", named: str | os.PathLike[str] | None = None
) -> None:
    """Create a folder and its parents, unless it exists; errors as of :func:`naming`, about the file ``named`` if
    given."""
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
    """Opens a new file that replaces ``path`` when the block has ended without an error.

    Raises:
        OSError: the file cannot be written; the message names it, and mentions an earlier one that still exists.
    """
    with unfinished(path, in_folder=False) as at, at.open("wb") as file:
        yield file


@contextmanager
def unfinished(path: Path, in_folder: bool = True) -> Iterator[Path]:
    """Yields a path for a new file or folder, which is renamed to ``path`` when the block has ended without an error.

    Args:
        path: an existing file is replaced; missing parent folders are created.
        in_folder: use the same file name in a temporary folder, for writers that read its suffix.

    Raises:
        FileExistsError: ``path`` is an existing folder.
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
        path: the final path.
        in_folder: see :func:`unfinished`.

    Attributes:
        at: the temporary path to write to.

    Raises:
        FileExistsError: ``path`` is an existing folder.
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
        """Flush to disk and rename to the final path."""
        for file in [file for file in self.at.rglob("*") if file.is_file()] if self.at.is_dir() else [self.at]:
            with file.open("rb+") as written:
                os.fsync(written.fileno())
        os.replace(self.at, self.path)
        with suppress(OSError):  # not every system supports this for folders
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self.drop()

    def drop(self) -> None:
        """Delete the temporary file or folder."""
        _delete(self._beside)
        _ours.discard(self._beside.name)


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True) if not path.is_dir() else shutil.rmtree(path)


def _place() -> str:
    """Returns the name of this machine and container; processes are numbered per container."""
    name = re.sub(r"\W", "_", socket.gethostname(), flags=re.ASCII)[:40]
    with suppress(OSError):
        return f"{name}_{os.stat('/proc/self/ns/pid').st_ino:x}"
    return name


def delete_left(folder: Path) -> None:
    """Delete unfinished files of killed processes in a folder."""
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
    """Whether a process of this machine is running."""
    if sys.platform == "win32":
        import ctypes

        handle = ctypes.windll.kernel32.OpenProcess(0x1000, False, process)  # PROCESS_QUERY_LIMITED_INFORMATION
        return bool(handle and ctypes.windll.kernel32.CloseHandle(handle))
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        pass
    return True


def _named(error: BaseException, path: Path) -> OSError | None:
    """Returns a write error that names the file; ``None`` if the error has another cause."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    about = path if error.filename is None else Path(str(error.filename))
    if about not in path.parents and path.parent not in (about, *about.parents):
        return None
    earlier = ", and the earlier one of that name is still there" if os.path.exists(path) else ""
    return OSError(error.errno, f"{error.strerror}; it was not written{earlier}", str(path))
