"""``.parquet``: a table with a row for each step, with spaces and environment in its metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polyak.data.datasets.formats.frames import frame_of, recording_of_frame
from polyak.data.datasets.formats.own_names import renamed
from polyak.data.datasets.formats.source import Source, pandas
from polyak.data.datasets.parts import DatasetError, Recording
from polyak.data.datasets.writing import replacing
from polyak.envs.space_json import decode_space, encode_space

_KEY = b"polyak"


def recognises(source: Source) -> bool:
    """The four letters that such a file begins with."""
    return source.start.startswith(b"PAR1")


def read(source: Source) -> Recording:
    """A table; one of our own with its spaces."""
    pa, pq = _pyarrow()
    try:
        table = pq.read_table(source.path)
    except pa.ArrowInvalid as error:
        raise DatasetError(f"{source} is damaged: {error}.") from error
    frame = table.to_pandas()
    frame = frame.rename(columns=renamed(frame.columns, source.columns, str(source)))
    recording = recording_of_frame(frame, str(source))
    about = json.loads((table.schema.metadata or {}).get(_KEY, b"null"))
    if about is None:
        return recording
    space, actions = (decode_space(about[name]) for name in ("observation_space", "action_space"))
    return recording._replace(observation_space=space, action_space=actions, env_id=about["env_id"])


def write(recording: Recording, path: Path) -> None:
    """A table, and what it was recorded in."""
    pa, pq = _pyarrow()
    about = {
        "observation_space": encode_space(recording.observation_space),  # type: ignore[arg-type]
        "action_space": encode_space(recording.action_space),  # type: ignore[arg-type]
        "env_id": recording.env_id,
    }
    table = pa.Table.from_pandas(frame_of(recording), preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: json.dumps(about).encode()})
    with replacing(path) as unfinished:
        pq.write_table(table, unfinished)


def _pyarrow() -> Any:
    pandas()
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'polyak[offline]'.") from error
    return pyarrow, pyarrow.parquet
