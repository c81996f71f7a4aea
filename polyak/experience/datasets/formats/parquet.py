"""``.parquet``: a table with a row for each step, with spaces and environment in its metadata."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.reading import plain_json, tables
from polyak.envs.reading.limits import check_unpacked
from polyak.envs.space_json import encode_space
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.frames import frame_of, recording_of_columns
from polyak.experience.datasets.formats.source import Source, decoded_space, pandas
from polyak.experience.datasets.named import NAMES
from polyak.writing import unfinished

_KEY = b"polyak"
_INDEX = re.compile(r"__index_level_[0-9]+__")
"""The names that pandas gives to the index of a table that it writes."""
EPISODES = frozenset(NAMES["episodes"].split())


def recognises(source: Source) -> bool:
    """Whether the source begins with the four letters of such a file."""
    return source.start.startswith(b"PAR1")


def read(source: Source) -> RecordedData:
    """Reads a table; one of our own with its spaces."""
    pa, pq = libraries()
    try:
        with pq.ParquetFile(source.path) as file:
            schema = file.schema_arrow
            _check_size(source, file)
            table = file.read([field.name for field in schema if _is_number(pa, field.type)])
            texts = _texts(pa, pq, source, schema)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{source} is damaged: {' '.join(str(error).split())}.") from error
    columns = {name: _numbers(table[name]) for name in table.column_names} | texts
    unread = {field.name: np.full(table.num_rows, f"<{field.type}>", object) for field in schema}
    ordered = {name: columns.get(name, unread[name]) for name in schema.names}
    recording = recording_of_columns({n: ordered[n] for n in ordered if not _INDEX.fullmatch(n)}, source)
    what = f"{source}: its metadata"
    about = plain_json.parse((schema.metadata or {}).get(_KEY, b"null"), what)
    if about is None:
        return recording
    if not isinstance(about, dict) or not isinstance(about.get("env_id"), str | None):
        raise DatasetError(f"{what} are {about!r:.80}, not those that polyak writes.")
    space, actions = (decoded_space(about, name, str(source)) for name in ("observation_space", "action_space"))
    return recording._replace(observation_space=space, action_space=actions, env_id=about.get("env_id"))


def _check_size(source: Source, file: Any) -> None:
    """Refuse columns that would fill the memory: a value that repeats takes no room in the file."""
    rows, columns = file.metadata.num_rows, file.schema_arrow.names
    tables.check_names(columns, str(source))
    if len(set(columns)) < len(columns):
        raise DatasetError(f"{source} has two columns of one name.")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    encoded = sum(group.total_byte_size for group in groups)
    check_unpacked(str(source), max(8 * len(columns) * rows, encoded), source.path.stat().st_size)


def _is_number(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(column: Any) -> np.ndarray:
    """Returns a column as numbers; missing values become NaN."""
    values = column.to_numpy()
    return np.asarray(values)


def _texts(pa: Any, pq: Any, source: Source, schema: Any) -> dict[str, np.ndarray]:
    """Returns the names of episodes, if they are texts. Each is read once, however often it is repeated."""
    is_text = {field.name: pa.types.is_string(field.type) or pa.types.is_large_string(field.type) for field in schema}
    called = {*EPISODES, source.columns.get("episodes")}
    names = [name for name in schema.names if is_text[name] and (name.lower() in called or name in called)]
    if not names:
        return {}
    table = pq.read_table(source.path, columns=names, read_dictionary=names)
    return {name: np.asarray(table[name].to_pandas().astype(object)) for name in names}


def write(recording: RecordedData, path: Path) -> None:
    """Write a table with its spaces and environment id."""
    pa, pq = libraries()
    about = {
        "observation_space": encode_space(recording.observation_space),  # type: ignore[arg-type]
        "action_space": encode_space(recording.action_space),  # type: ignore[arg-type]
        "env_id": recording.env_id,
    }
    table = pa.Table.from_pandas(frame_of(recording), preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: json.dumps(about).encode()})
    with unfinished(path) as at:
        pq.write_table(table, at)


def libraries() -> Any:
    """pyarrow, and its reader of Parquet files.

    Raises:
        ImportError: one is not installed.
    """
    pandas()
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'polyak[offline]'.") from error
    return pyarrow, pyarrow.parquet
