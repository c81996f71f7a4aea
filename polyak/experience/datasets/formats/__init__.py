"""The file formats of datasets: one module for each, and a table of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats import csv, d3rlpy, d4rl, lerobot, minari, npz, parquet, replay, rllib
from polyak.experience.datasets.formats.frames import recording_of_frame
from polyak.experience.datasets.formats.source import Source, damage_named, is_frame


class Format(NamedTuple):
    """Functions that recognise, read and write files of one format."""

    recognises: Callable[[Source], bool]
    """Whether a file has this format, by its content."""
    read: Callable[[Source], RecordedData]
    write: Callable[[RecordedData, Path], None] | None = None
    suffixes: tuple[str, ...] = ()
    """Suffixes of the files that are written in this format."""
    is_table: bool = False
    """Whether the format has columns, which may have any names if :class:`Source` maps them."""


FORMATS: dict[str, Format] = {
    "npz": Format(npz.recognises, npz.read, npz.write, (".npz",)),
    "lerobot": Format(lerobot.recognises, lerobot.read),
    "rllib": Format(rllib.recognises, rllib.read, is_table=True),
    "csv": Format(csv.recognises, csv.read, csv.write, (".csv",), is_table=True),
    "parquet": Format(parquet.recognises, parquet.read, parquet.write, (".parquet", ".pq"), is_table=True),
    "minari": Format(minari.recognises, minari.read, minari.write),
    "d4rl": Format(d4rl.recognises, d4rl.read),
    "d3rlpy": Format(d3rlpy.recognises, d3rlpy.read),
    "replay": Format(replay.recognises, replay.read),
}
"""The formats, in the order in which they are tried."""


def read(path: Any, format: str | None = None, **options: Any) -> RecordedData:
    """Read a file, a folder, a name or a table in whatever format it is.

    Args:
        path: of a file or folder; or the id of a Minari dataset; or a DataFrame of pandas or polars.
        format: a key of :data:`FORMATS`; None finds it by the content.
        options: the other fields of :class:`~polyak.experience.datasets.formats.source.Source`.

    Raises:
        TypeError: it is none of these.
        FileNotFoundError: there is nothing of that name.
        DatasetError: it is in none of the formats, or cannot be learned from.
    """
    _check(format, list(FORMATS))
    source = Source(path, **options)
    if is_frame(path):
        with damage_named(str(source)):
            return recording_of_frame(source)
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"path={path!r:.100} is neither a path nor a DataFrame of pandas or polars. Arrays make a dataset by "
            "Dataset(observations, actions, rewards, terminations)."
        )
    if not source.exists and not minari.recognises(source):
        raise FileNotFoundError(f"path={str(path)!r}: there is no such file, and it is no id of a Minari dataset.")
    if source.exists and not (source.path.is_file() or source.path.is_dir()):
        raise DatasetError(f"{source} is a pipe or a device, neither a file nor a folder.")
    candidates = FORMATS if format is None else {format: FORMATS[format]}
    with damage_named(str(source)):
        for name, kind in candidates.items():
            if format is not None or kind.recognises(source):
                if source.columns and not kind.is_table:
                    raise DatasetError(
                        f"{source} is of the format {name}, not a table: it has no {list(source.columns)}."
                    )
                return kind.read(source)
    raise DatasetError(f"{source}: it is in none of the formats that are read: {', '.join(FORMATS)}.{source.hint}")


def write(recording: RecordedData, path: Any, format: str | None = None) -> Path:
    """Write a file or folder, which is renamed to its path once it is complete.

    Args:
        recording: the data to write.
        path: its path; ``.npz`` is added if there is no suffix and no format is given.
        format: one of those that can be written; None: by the suffix of ``path``.

    Returns:
        the path of the file or folder.

    Raises:
        DatasetError: the format cannot hold it.
        ValueError: no such format, or none with that suffix.
    """
    target, name = target_of(path, format)
    writer = FORMATS[name].write
    assert writer is not None
    writer(recording, target)
    return target


def target_of(path: Any, format: str | None = None) -> tuple[Path, str]:
    """Returns the path and the format that :func:`write` uses.

    Raises:
        ValueError: no such format, or none with that suffix.
    """
    writable = {name: kind for name, kind in FORMATS.items() if kind.write is not None}
    _check(format, list(writable))
    target = Path(path).expanduser()
    if format is None:
        target = target if target.suffix else target.with_name(f"{target.name}.npz")
        format = next((name for name, kind in writable.items() if target.suffix.lower() in kind.suffixes), None)
    if format is None:
        known = ", ".join(suffix for kind in writable.values() for suffix in kind.suffixes)
        raise ValueError(f"path={str(path)!r} has none of the suffixes {known}: pass format, of {list(writable)}.")
    return target, format


def _check(format: str | None, known: list[str]) -> None:
    if format is not None and format not in known:
        raise ValueError(f"format={format!r} is none of {known}.")
