"""Zips and arrays byte by byte, so that they can say what no library would write."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 2**20


def npy(array: Any) -> bytes:
    """An array as numpy writes it; one of objects is pickled."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def header(shape: str, descr: str = "'<f4'", version: int = 1) -> bytes:
    """The beginning of an array of any shape, written as text."""
    return raw_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}", version)


def raw_header(text: str, version: int = 1) -> bytes:
    content = text.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(content))
    return b"\x93NUMPY" + bytes([version, 0]) + length + content


def arrays(n: int = 6) -> dict[str, Any]:
    """Two episodes of three steps, under D4RL's names."""
    ends = np.arange(n) % 3 == 2
    return {
        "observations": np.arange(3 * n, dtype=np.float32).reshape(n, 3),
        "actions": np.arange(n) % 2,
        "rewards": np.ones(n, np.float32),
        "terminals": ends,
        "timeouts": np.zeros(n, bool),
    }


def npz(path: Path, members: Mapping[str, bytes] = {}, compression: int = zipfile.ZIP_STORED, **changes: Any) -> Path:
    """The good arrays with some of them changed, and further members; a change to None leaves one out."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in {**arrays(), **changes}.items():
            if array is not None:
                archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else npy(array))
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def bomb(path: Path, starts: Mapping[str, tuple[bytes, int]]) -> Path:
    """A zip of members that begin as given and go on with so many zeros, a thousandth of them on disk.

    Args:
        starts: name -> first bytes, and number of zeros, less than 4 GB.
    """
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    squeeze.compress(b"")
    block = squeeze.compress(bytes(BLOCK)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    content, directory = b"", b""
    for name, (start, zeros) in starts.items():
        first = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = first.compress(start + bytes(zeros % BLOCK)) + first.flush(zlib.Z_FULL_FLUSH)
        data += zeros // BLOCK * block + b"\x03\x00"
        checksum = 0 if zeros else zlib.crc32(start)  # of what is too large nobody gets to see the end
        sizes = struct.pack("<IIIHH", checksum, len(data), len(start) + zeros, len(name), 0)
        common = struct.pack("<HHHHH", 20, 0, 8, 0, 33) + sizes
        place = len(content)
        content += b"PK\x03\x04" + common + name.encode() + data
        directory += b"PK\x01\x02\x14\x00" + common + struct.pack("<HHHII", 0, 0, 0, 0, place) + name.encode()
    end = struct.pack("<HHHHIIH", 0, 0, len(starts), len(starts), len(directory), len(content), 0)
    path.write_bytes(content + directory + b"PK\x05\x06" + end)
    return path


def edited(source: Path, path: Path, edit: Any) -> Path:
    """A zip whose members, by name, went through a function first."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (edit(members) or members).items():
            archive.writestr(name, content)
    return path


def cut(source: Path, path: Path, share: float) -> Path:
    """The first part of a file."""
    content = source.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    return path
