"""``.csv``: a table with a row for each step; numbers are written so that reading gives them back exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyak.envs.reading import tables
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.frames import frame_of, recording_of_columns
from polyak.experience.datasets.formats.source import Source, pandas
from polyak.writing import unfinished

_SEPARATORS = ",;\t"


def recognises(source: Source) -> bool:
    """Lines of text, with separators in the first."""
    return b"\0" not in source.start and any(mark in _header(source) for mark in _SEPARATORS)


def _header(source: Source) -> str:
    try:
        return source.start.partition(b"\n")[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""


def read(source: Source) -> RecordedData:
    """A table; floats become float32 where nothing is lost by it."""
    pd = pandas()
    separator = max(_SEPARATORS, key=_header(source).count)
    with source.path.open("rb") as file:
        tables.check_table(file, separator, str(source))
    try:
        frame = pd.read_csv(source.path, sep=separator, float_precision="round_trip", encoding="utf-8-sig")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DatasetError(f"{source} is no table: {' '.join(str(error).split())}.") from error
    return recording_of_columns({name: _narrowed(frame[name].to_numpy()) for name in frame.columns}, source)


def _narrowed(column: np.ndarray) -> np.ndarray:
    if column.dtype != np.float64:
        return column
    with np.errstate(over="ignore"):
        narrow = column.astype(np.float32)
    return narrow if (narrow.astype(np.float64) == column).all() else column


def write(recording: RecordedData, path: Path) -> None:
    """Write a table. It cannot hold spaces, which are derived again when it is read."""
    frame = frame_of(recording)
    exact = {name: np.float64 for name, dtype in frame.dtypes.items() if dtype.kind == "f"}
    with unfinished(path) as at:
        frame.astype(exact).to_csv(at, index=False, encoding="utf-8")
