"""``.npz``: the arrays of a dataset as it keeps them, or any arrays under the usual names.

A file of our own holds ``dataset.json`` (spaces, environment) and, uncompressed, ``observations.npy`` (or
``observations/<key>.npy``), ``actions.npy``, ``rewards.npy``, ``ends.npy``, ``terminated.npy`` and
``columns/<name>.npy``: see :class:`~polyak.experience.datasets.episodes.Parts`. Each array begins at a multiple of 64
bytes, so that it can be left in the file and read as it is needed. ``numpy.load`` reads it, too.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.reading import npz, plain_json
from polyak.envs.space_json import encode_space
from polyak.experience.datasets.checks import chunks
from polyak.experience.datasets.episodes import DatasetError, Parts, RecordedData, arrays_of
from polyak.experience.datasets.formats.source import Source, decoded_space
from polyak.experience.datasets.named import grouped, recording_of
from polyak.experience.memory import available_memory
from polyak.writing import replacing

VERSION = 1
ALIGNMENT = 64
SHARE = 0.25
"""Share of the free memory: arrays of larger files are left on disk."""
_DESCRIPTION = "dataset.json"
_LOCAL_HEADER, _ZIP64_FIELD, _PADDING_FIELD = 30, 20, 0xD935  # bytes of each; the number that zip aligners use


def recognises(source: Source) -> bool:
    """A zip of arrays."""
    return any(name.endswith(".npy") for name in source.members)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(source: Source) -> RecordedData:
    """A file of our own, or arrays under names of :data:`~polyak.experience.datasets.named.NAMES`."""
    try:
        if _DESCRIPTION in source.members:
            return _read_own(source)
        arrays = npz.read(source.path, str(source))
    except ValueError as error:
        raise error if isinstance(error, DatasetError) else DatasetError(str(error)) from error
    return recording_of(grouped(arrays), str(source))


def _read_own(source: Source) -> RecordedData:
    with npz.opened(source.path, str(source)) as archive:
        about = _description(source, archive)
        found = npz.headers(archive, str(source))
        size = sum(header.nbytes for header in found.values())
        keep = source.in_memory if source.in_memory is not None else size <= SHARE * (available_memory() or size)
        load = npz.array if keep else partial(_mapped, source.path)
        groups = grouped({name: load(archive, name) for name in found})
    if missing := sorted(set(Parts._fields) - {"columns"} - groups.keys()):
        raise DatasetError(f"{source} is damaged: it has no {missing}.")
    parts = Parts(**{"columns": {}, **{name: groups[name] for name in groups.keys() & set(Parts._fields)}})
    _check_episodes(source, parts)
    space, actions = (decoded_space(about, name, str(source)) for name in _SPACES)
    return RecordedData(parts, space, actions, about.get("env_id"))


_SPACES = "observation_space", "action_space"


def _description(source: Source, archive: zipfile.ZipFile) -> dict[str, Any]:
    what = f"{source}: its {_DESCRIPTION}"
    if archive.getinfo(_DESCRIPTION).file_size > plain_json.MOST_BYTES:
        raise DatasetError(f"{what} is larger than {plain_json.MOST_BYTES:,} bytes.")
    about = plain_json.parse_object(archive.read(_DESCRIPTION), what)
    if about.get("format") != "polyak-dataset" or plain_json.whole(about, "version", what) > VERSION:
        raise DatasetError(
            f"{source} is {about.get('format')!r}, version {about.get('version')}; this polyak reads "
            f"'polyak-dataset' up to version {VERSION}. Upgrade polyak."
        )
    if not isinstance(about.get("env_id"), str | None):
        raise DatasetError(f"{what} has env_id={about['env_id']!r:.80}, which is no name.")
    return about


def _check_episodes(source: Source, parts: Parts) -> None:
    arrays = {name: getattr(parts, name) for name in ("actions", "rewards", "ends", "terminated")}
    if flat := [name for name, array in arrays.items() if isinstance(array, dict) or not array.ndim]:
        raise DatasetError(f"{source} is damaged: its {flat[0]} are no array of rows.")
    if not isinstance(parts.columns, dict):
        raise DatasetError(f"{source} is damaged: its columns have no names.")
    rows = {**parts.columns, **{f"observations[{key!r}]": a for key, a in arrays_of(parts.observations).items()}}
    if flat := [name for name, array in rows.items() if isinstance(array, dict) or not array.ndim]:
        raise DatasetError(f"{source} is damaged: its {flat[0]} are no array of rows.")
    n, e = len(parts.actions), len(parts.ends)
    whole = parts.ends.ndim == 1 and parts.ends.dtype.kind in "iu" and e > 0
    whole = whole and bool((np.diff(parts.ends.astype(np.int64), prepend=0) > 0).all()) and parts.ends[-1] == n
    lengths = [len(array) == n + e for array in arrays_of(parts.observations).values()]
    lengths += [len(array) == n for array in (parts.rewards, *parts.columns.values())]
    whole = whole and all(lengths) and parts.rewards.ndim == 1
    if not (whole and parts.terminated.shape == (e,) and parts.terminated.dtype == bool):
        raise DatasetError(f"{source} is damaged: its arrays do not fit each other.")


def _mapped(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array that stays in the file, read-only; one that was compressed afterwards is read."""
    member = archive.getinfo(name + npz.SUFFIX)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < 1024:
        return npz.array(archive, name)
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)  # over the name and the extra fields
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        mapped = np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    return np.asarray(mapped)


# -- writing -----------------------------------------------------------------------------------------------------------


def write(recording: RecordedData, path: Path) -> None:
    """A file of our own, piece by piece."""
    about: dict[str, Any] = {"format": "polyak-dataset", "version": VERSION, "env_id": recording.env_id}
    for name in _SPACES:
        about[name] = encode_space(getattr(recording, name))
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
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
