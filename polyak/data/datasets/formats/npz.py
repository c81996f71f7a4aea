"""``.npz``: the arrays of a dataset as it keeps them, or anybody's arrays under the usual names.

A file of our own holds ``dataset.json`` (spaces, environment) and, uncompressed, ``observations.npy`` (or
``observations/<key>.npy``), ``actions.npy``, ``rewards.npy``, ``ends.npy``, ``terminated.npy`` and
``columns/<name>.npy``: see :class:`~polyak.data.datasets.parts.Parts`. Each array begins at a multiple of 64 bytes, so
that it can be left in the file and read as it is needed. ``numpy.load`` reads it, too.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyak.data.datasets.checks import chunks
from polyak.data.datasets.formats.source import Source
from polyak.data.datasets.named import grouped, recording_of
from polyak.data.datasets.parts import DatasetError, Parts, Recording, arrays_of
from polyak.data.datasets.writing import replacing
from polyak.data.storage.memory import available_memory
from polyak.envs.space_json import decode_space, encode_space

VERSION = 1
ALIGNMENT = 64
SHARE = 0.25
"""Of the free memory: larger files are left where they are."""
_DESCRIPTION = "dataset.json"
_LOCAL_HEADER, _ZIP64_FIELD, _PADDING_FIELD = 30, 20, 0xD935  # bytes of each; the number that zip aligners use


def recognises(source: Source) -> bool:
    """A zip of arrays."""
    return any(name.endswith(".npy") for name in source.members)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(source: Source) -> Recording:
    """A file of our own, or arrays under names of :data:`~polyak.data.datasets.named.NAMES`."""
    try:
        if _DESCRIPTION in source.members:
            return _read_own(source)
        with np.load(source.path, allow_pickle=False) as file:
            return recording_of(grouped({name: file[name] for name in file.files}), str(source))
    except (zipfile.BadZipFile, OSError, EOFError, KeyError, struct.error) as error:
        raise DatasetError(f"{source} is damaged: {error}.") from error
    except ValueError as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{source} cannot be read: {error}.") from error


def _read_own(source: Source) -> Recording:
    with zipfile.ZipFile(source.path) as archive:
        about = json.loads(archive.read(_DESCRIPTION))
        if about.get("format") != "polyak-dataset" or about.get("version", 0) > VERSION:
            raise DatasetError(
                f"{source} is {about.get('format')!r}, version {about.get('version')}; this polyak reads "
                f"'polyak-dataset' up to version {VERSION}. Upgrade polyak."
            )
        names = [name.removesuffix(".npy") for name in source.members if name.endswith(".npy")]
        size = sum(member.file_size for member in archive.infolist())
        keep = source.in_memory if source.in_memory is not None else size <= SHARE * (available_memory() or size)
        arrays = {name: (_loaded if keep else _mapped)(source.path, archive, f"{name}.npy") for name in names}
    groups = grouped(arrays)
    if missing := sorted(set(Parts._fields) - {"columns"} - groups.keys()):
        raise DatasetError(f"{source} is damaged: it has no {missing}.")
    parts = Parts(**{"columns": {}, **{name: groups[name] for name in groups.keys() & set(Parts._fields)}})
    _check_episodes(source, parts)
    space, actions = (decode_space(about[name]) for name in _SPACES)
    return Recording(parts, space, actions, about["env_id"])


_SPACES = "observation_space", "action_space"


def _check_episodes(source: Source, parts: Parts) -> None:
    n, e = len(parts.actions), len(parts.ends)
    whole = parts.ends.ndim == 1 and e > 0 and bool((np.diff(parts.ends, prepend=0) > 0).all()) and parts.ends[-1] == n
    lengths = [len(array) == n + e for array in arrays_of(parts.observations).values()]
    lengths += [len(array) == n for array in (parts.rewards, *parts.columns.values())]
    if not (whole and all(lengths) and parts.terminated.shape == (e,) and parts.terminated.dtype == bool):
        raise DatasetError(f"{source} is damaged: its arrays do not fit each other.")


def _loaded(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _mapped(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array that stays in the file, read-only; one that was compressed afterwards is read."""
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < 1024:
        return _loaded(path, archive, name)
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)  # over the name and the extra fields
        begun = file.tell()
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject or file.tell() - begun + dtype.itemsize * int(np.prod(shape)) != member.file_size:
            raise DatasetError(f"path={str(path)!r} is damaged: {name} has another size than it says.")
        mapped = np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    return np.asarray(mapped)


# -- writing -----------------------------------------------------------------------------------------------------------


def write(recording: Recording, path: Path) -> None:
    """A file of our own, piece by piece."""
    about: dict[str, Any] = {"format": "polyak-dataset", "version": VERSION, "env_id": recording.env_id}
    for name in _SPACES:
        about[name] = encode_space(getattr(recording, name))
    with replacing(path) as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_DESCRIPTION, json.dumps(about, indent=1))
        for name, array in _members(recording.parts):
            _write_array(archive, f"{name}.npy", array)


def _members(parts: Parts) -> Iterator[tuple[str, np.ndarray]]:
    for field, value in parts._asdict().items():
        if isinstance(value, Mapping):
            yield from ((f"{field}/{key}", array) for key, array in value.items())
        else:
            yield field, value


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    assert archive.fp is not None
    begins = archive.fp.tell() + _LOCAL_HEADER + len(name.encode()) + _ZIP64_FIELD
    padding = -begins % ALIGNMENT
    padding += ALIGNMENT if padding < 4 else 0
    member.extra = struct.pack("<HH", _PADDING_FIELD, padding - 4) + bytes(padding - 4)
    header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array_header_2_0(file, header)
        for _, rows in chunks(array):
            file.write(np.ascontiguousarray(rows).tobytes())
