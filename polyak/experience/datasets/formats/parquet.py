"""``.parquet``: a table with a row for each step, with spaces and environment in its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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
    """The four letters that such a file begins with."""
    return source.start.startswith(b"PAR1")


def read(source: Source) -> RecordedData:
    """A table; one of our own with its spaces."""
    pa, pq = libraries()
    called = {*EPISODES, source.columns.get("episodes")}
    table = table_of(source.path, str(source), lambda name: name.lower() in called or name in called, is_number)
    schema = pq.read_schema(source.path)
    unread = {field.name: np.full(table.num_rows, f"<{field.type}>", object) for field in schema}
    found = {name: _array(pa, table[name]) for name in table.column_names}
    ordered = {name: found.get(name, unread[name]) for name in schema.names if not _INDEX.fullmatch(name)}
    recording = recording_of_columns(ordered, source)
    what = f"{source}: its metadata"
    about = plain_json.parse((schema.metadata or {}).get(_KEY, b"null"), what)
    if about is None:
        return recording
    if not isinstance(about, dict) or not isinstance(about.get("env_id"), str | None):
        raise DatasetError(f"{what} are {about!r:.80}, not those that polyak writes.")
    space, actions = (decoded_space(about, name, str(source)) for name in ("observation_space", "action_space"))
    return recording._replace(observation_space=space, action_space=actions, env_id=about.get("env_id"))


def _array(pa: Any, column: Any) -> np.ndarray:
    """Numbers, where what is missing is not one; the names of episodes as objects."""
    if pa.types.is_dictionary(column.type):
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())


def table_of(path: Path, what: str, reads_text: Callable[[str], bool], reads: Callable[[Any, Any], bool]) -> Any:
    """What can be read of a Parquet file, if it may be as large in memory as it is: a value that repeats takes no room
    in the file.

    Args:
        path: of the file.
        what: what to call it in messages.
        reads_text: whether to read a column of texts, by its name; each text is read once, however often it is there.
        reads: whether to read a column of other values, given pyarrow and its type.

    Raises:
        DatasetError: it is damaged, would fill the memory, or has two columns of one name.
    """
    pa, pq = libraries()
    size = path.stat().st_size
    try:
        schema = pq.read_schema(path)
        tables.check_names(schema.names, what)
        if len(set(schema.names)) < len(schema):
            raise DatasetError(f"{what} has two columns of one name.")
        texts = [field.name for field in schema if _is_text(pa, field.type) and reads_text(field.name)]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            values = sum(group.column(n).num_values for group in groups for n in range(group.num_columns))
            encoded = sum(group.total_byte_size for group in groups)
            check_unpacked(what, max(8 * values, encoded), size)
            table = file.read([field.name for field in schema if field.name in texts or reads(pa, field.type)])
        for name in texts:
            check_unpacked(f"{what}: {name}", sum(map(_length, table[name].chunks)), size)
        return table
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{what} is damaged: {' '.join(str(error).split())}.") from error


def is_number(pa: Any, found: Any) -> bool:
    """Whether a type is of numbers, or of true and false."""
    return bool(pa.types.is_boolean(found) or pa.types.is_integer(found) or pa.types.is_floating(found))


def _is_text(pa: Any, found: Any) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(found) for is_kind in kinds)


def _length(chunk: Any) -> int:
    """Bytes of all texts of a column's piece, whose distinct ones are in a dictionary."""
    lengths = np.asarray([len(text or b"") for text in chunk.dictionary.to_pylist()], np.int64)
    indices = chunk.indices.drop_null().to_numpy(zero_copy_only=False)
    return int(lengths[indices].sum()) if len(lengths) else 0


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
