"""Opening of files; zips are checked before any of their contents are read."""

import contextlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from polyak.envs.reading.zips import open_zip
from polyak.writing import replacing

__all__ = ["DAMAGED", "begins_with", "check_members", "name_of", "open_zip", "opened"]

DAMAGED = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OverflowError,
    UnicodeDecodeError,
)
"""Errors of reading a file that is no zip, or a damaged one."""

_MAX_GROWTH = 20
"""A zip with compressed members may unpack to at most this many times its own size. Weights hardly shrink, text shrinks
to a tenth. Uncompressed members cannot exceed the size of the file, unless they overlap."""
_ALWAYS_ALLOWED = 2**20
_MAX_MEMBERS = 10_000


@contextlib.contextmanager
def opened(target: Any, mode: str, suffix: str = ".zip") -> Iterator[IO[bytes]]:
    """Opens a file given by path (with ``suffix`` if it has none), or yields one that is already open.

    A path is written by :func:`~polyak.writing.replacing`.
    """
    if not isinstance(target, str | os.PathLike):
        if not hasattr(target, "write" if mode == "wb" else "read"):
            raise TypeError(f"path={target!r} is neither a path nor an open binary file.")
        yield target
        return
    path = Path(target).expanduser()
    if (mode == "wb" and not path.suffix) or (mode == "rb" and not path.is_file()):
        path = path.with_name(path.name + suffix)
    if mode == "rb":
        if not path.is_file():
            raise FileNotFoundError(f"path={str(target)!r}: there is no file {str(path)!r}.")
        with path.open("rb") as file:
            yield file
        return
    with replacing(path) as file:
        yield file


def name_of(file: Any, source: Any) -> str:
    """Returns the name of an open file for messages."""
    return str(getattr(file, "name", None) or repr(source))


def begins_with(file: IO[bytes], start: bytes) -> bool:
    """Whether the rest of an open file begins with these bytes; its position is restored."""
    found = file.read(len(start))
    file.seek(-len(found), os.SEEK_CUR)
    return found == start


def check_members(archive: zipfile.ZipFile, name: str, compressed: bool = False) -> set[str]:
    """Returns the names in a zip, after checking that reading them can neither exhaust the memory nor reach another
    file.

    Args:
        archive: an open zip.
        name: its name in messages.
        compressed: whether members may be compressed.

    Raises:
        ValueError: a member is not one that polyak writes; the message names it.
    """
    members = archive.infolist()
    size = _size(archive)
    allowed = _MAX_GROWTH * size + _ALWAYS_ALLOWED if compressed else size
    total = sum(member.file_size for member in members)
    if len(members) > _MAX_MEMBERS:
        raise ValueError(f"{name} is damaged: it has {len(members):,} members, more than {_MAX_MEMBERS:,}.")
    names: set[str] = set()
    for member in members:
        path = member.filename.replace("\\", "/")
        if path.startswith("/") or ":" in path or ".." in path.split("/") or "\0" in path:
            raise ValueError(f"{name} is damaged: it holds a member called {member.filename!r}.")
        if member.filename in names:
            raise ValueError(f"{name} is damaged: it holds {member.filename!r} twice.")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise ValueError(f"{name} is damaged: {member.filename} is a symbolic link.")
        if member.flag_bits & 1:
            raise ValueError(f"{name} cannot be read: {member.filename} is encrypted.")
        if member.compress_type != zipfile.ZIP_STORED and not (
            compressed and member.compress_type == zipfile.ZIP_DEFLATED
        ):
            raise ValueError(f"{name} is damaged: {member.filename} is compressed, which polyak never does.")
        names.add(member.filename)
    if total > allowed:
        raise ValueError(
            f"{name} is damaged: its {len(members)} members would unpack to {total:,} bytes, from a file of {size:,}."
        )
    return names


def _size(archive: zipfile.ZipFile) -> int:
    file = archive.fp
    assert file is not None
    position = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(position)
    return size
