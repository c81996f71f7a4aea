"""Zips of arrays (``.npz``), checked before anything in them is unpacked.

The header of each array gives its type and shape, and the archive its number of bytes: they must agree, and the arrays
to be read must stay within :mod:`~polyak.envs.reading.limits`. Arrays of objects are refused: they are pickles.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyak.envs.reading.limits import check_regular, check_unpacked
from polyak.envs.reading.zips import open_zip

SUFFIX = ".npy"
MOST_MEMBERS = 100_000
_LONGEST_HEADER = 2**16
_LENGTHS = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}
_DAMAGED = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, OverflowError, KeyError),
    *(NotImplementedError, RuntimeError, RecursionError, MemoryError, SyntaxError, UnicodeDecodeError, OSError),
)


class Header(NamedTuple):
    """The header of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def cost(self) -> int:
        """Bytes of memory that it needs; empty dimensions and types of size 0 count as size 1."""
        return math.prod(max(length, 1) for length in self.shape) * max(self.dtype.itemsize, 1)


@contextmanager
def opened(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """Opens the archive at ``path``, after checking that its members are neither encrypted nor duplicated.

    Any error within the block that a damaged archive causes becomes a ValueError.

    Raises:
        ValueError: the file is no such archive, or a damaged one; the message begins with ``what``.
    """
    check_regular(path, what)
    try:
        with path.open("rb") as file, open_zip(file, what) as archive:
            _check_members(archive, what)
            yield archive
    except FileNotFoundError:
        raise
    except _DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{what} is damaged: {reason}.") from error


def _check_members(archive: zipfile.ZipFile, what: str) -> None:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise ValueError(f"{what} is damaged: it has {len(members):,} members, more than {MOST_MEMBERS:,}.")
    names: set[str] = set()
    for member in members:
        if member.filename in names:
            raise ValueError(f"{what} is damaged: it holds {member.filename!r} twice.")
        if member.flag_bits & 1:
            raise ValueError(f"{what} cannot be read: {member.filename} is encrypted.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{what} cannot be read: {member.filename} is compressed by a method that is not numpy's.")
        names.add(member.filename)


def headers(archive: zipfile.ZipFile, what: str, names: Collection[str] | None = None) -> dict[str, Header]:
    """The headers of the arrays called ``names`` (without ``.npy``), or of all; nothing else is read.

    Raises:
        ValueError: one is damaged, of objects, or all together would take more memory than the file may fill.
    """
    there = [name.removesuffix(SUFFIX) for name in archive.namelist() if name.endswith(SUFFIX)]
    found = {name: _header(archive, name, what) for name in there if names is None or name in names}
    check_unpacked(what, sum(header.cost for header in found.values()), size_of(archive))
    return found


def _header(archive: zipfile.ZipFile, name: str, what: str) -> Header:
    member = archive.getinfo(name + SUFFIX)
    with archive.open(member) as file:
        start = file.read(8)
        length = _LENGTHS.get((start[6], start[7])) if len(start) == 8 and start[:6] == b"\x93NUMPY" else None
        if length is None:
            raise ValueError(f"{what} is damaged: {member.filename} is no array.")
        start += file.read(struct.calcsize(length))
        (size,) = struct.unpack(length, start[8:])
        if size > _LONGEST_HEADER:
            raise ValueError(f"{what} is damaged: {member.filename} has a header of {size:,} bytes.")
        start += file.read(size)
    header = _parsed(start, f"{what} is damaged: the header of {member.filename}")
    if header.dtype.hasobject:
        raise ValueError(f"{what} cannot be read: {member.filename} holds Python objects, which would be unpickled.")
    if len(start) + header.nbytes != member.file_size:
        raise ValueError(
            f"{what} is damaged: {member.filename} says that it is {header.dtype}{list(header.shape)}, but has "
            f"{member.file_size - len(start):,} bytes."
        )
    return header


def _parsed(start: bytes, what: str) -> Header:
    if start[6] == 3:  # the same as 2, but for field names in UTF-8; arrays of fields are of no use here
        start = start[:6] + b"\x02" + start[7:]
    read = np.lib.format.read_array_header_1_0 if start[6] == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(io.BytesIO(start[8:]))
    except (ValueError, TypeError, KeyError, MemoryError, RecursionError, OverflowError, SyntaxError) as error:
        raise ValueError(f"{what} cannot be understood ({type(error).__name__}).") from error
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"{what} has the shape {shape!r:.80}.")
    return Header(shape, dtype)


def size_of(archive: zipfile.ZipFile) -> int:
    """Bytes of the archive's file."""
    assert archive.fp is not None
    position = archive.fp.tell()
    size = archive.fp.seek(0, io.SEEK_END)
    archive.fp.seek(position)
    return size


def array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Reads an array into memory; its header was checked before."""
    with archive.open(name + SUFFIX) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read(path: Path, what: str, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays called ``names``, or all.

    Raises:
        ValueError: as :func:`opened` and :func:`headers`.
    """
    with opened(path, what) as archive:
        return {name: array(archive, name) for name in headers(archive, what, names)}
