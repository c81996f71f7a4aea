"""RLlib's recordings: Parquet files of episodes or of columns, JSON lines of sample batches, alone or in folders.

- episodes: a column ``item`` of msgpack, an episode or a piece of one in each row;
- columns: a row for each step, with ``obs``, ``actions``, ``rewards``, ``new_obs``, ``terminateds``, ``truncateds`` and
  ``eps_id``, whose values are numbers, lists of them, or arrays that were packed (pickled, LZ4, base64);
- sample batches of the old stack: an object in each line, with a list or a packed array under each of these names.

No pickle is run: packed arrays are read as :mod:`polyak.compat.sb3_face.files.unpickle` reads Stable-Baselines3's.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Set
from itertools import groupby, pairwise
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import numpy as np

from polyak import formats
from polyak.arrays import mapped
from polyak.envs.reading import plain_json
from polyak.envs.reading.limits import allowed, check_unpacked
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.own_names import USUAL
from polyak.experience.datasets.formats.parquet import is_number, libraries, table_of
from polyak.experience.datasets.formats.source import Source, damage_named
from polyak.experience.datasets.named import numeric, recording_of

EPISODES, COLUMNS, SAMPLE_BATCHES = "episodes", "columns", "sample batches"
NAMES = {
    "obs": "observations",
    "actions": "actions",
    "rewards": "rewards",
    "new_obs": "next_observations",
    "terminateds": "terminations",
    "truncateds": "truncations",
    "dones": "dones",
    "eps_id": "episodes",
    "t": "steps",
}
"""RLlib's names -> those of a dataset's arguments."""
IDLE = frozenset(["infos", "agent_id", "module_id", "agent_index", "unroll_id", "type", "count", "weights_seq_no"])
"""Columns that are not read."""
_BATCH = re.compile(rb'^\s*\{.{0,200}?"type"\s*:\s*"(SampleBatch|MultiAgentBatch)"', re.DOTALL)
_SUFFIXES = (".parquet", ".pq", ".json", ".jsonl")

Rows = dict[str, Any]
"""RLlib's name -> [N, ...], or a dict of such."""


# -- detection ---------------------------------------------------------------------------------------------------------


def recognises(source: Source) -> bool:
    """A file of one of the three kinds, or a folder with some."""
    return kind(source) is not None


def kind(source: Source) -> str | None:
    """:data:`EPISODES`, :data:`COLUMNS` or :data:`SAMPLE_BATCHES`; ``None``: it is no recording of RLlib's."""
    files = _files(source)
    if not files:
        return None
    first = source if files == [source.path] else Source(files[0])
    if _BATCH.match(first.start):
        return SAMPLE_BATCHES
    if not first.start.startswith(b"PAR1"):
        return None
    pa, pq = libraries()
    try:
        schema = pq.read_schema(first.path)
    except (pa.ArrowException, OSError):
        return None
    types = {field.name: field.type for field in schema}
    if "item" in types and (pa.types.is_binary(types["item"]) or pa.types.is_large_binary(types["item"])):
        return EPISODES
    found = types.get(str(source.columns.get("observations", "obs")))
    whole = found is not None and not is_number(pa, found)
    return COLUMNS if whole or ("obs" in types and "new_obs" in types) else None


def is_of_runners(source: Source) -> bool:
    """Whether RLlib's own runners recorded the data. Their actions are those of the module: continuous ones in [-1, 1],
    unless ``normalize_actions=False``."""
    found = kind(source)
    if found != COLUMNS:
        return found == EPISODES
    _, pq = libraries()
    return "module_id" in pq.read_schema(_files(source)[0]).names


def _files(source: Source) -> list[Path]:
    """The file itself, or the files of a folder and of those in it, by name."""
    if source.path.is_file():
        return [source.path]
    if not source.path.is_dir():
        return []
    return sorted(
        path
        for path in source.path.rglob("*")
        if path.suffix.lower() in _SUFFIXES and path.is_file() and not path.name.startswith((".", "_"))
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def read(source: Source) -> RecordedData:
    """Read all steps of all files, in the order of the files' names."""
    found = kind(source)
    if found is None:
        raise DatasetError(f"{source} is no recording of RLlib's.")
    readers = {EPISODES: _episodes, COLUMNS: _columns, SAMPLE_BATCHES: _sample_batches}
    folders: list[Rows] = []
    for _, paths in groupby(_files(source), lambda path: path.parent):
        pieces: list[Rows] = []
        for path in paths:
            what = f"path={str(path)!r}"
            with damage_named(what):
                pieces += [piece for piece in readers[found](source, path, what) if len(piece.get("rewards", ()))]
        folders += [_joined(pieces, str(source))] if pieces else []
    if not folders:
        raise DatasetError(f"{source} has no steps.")
    once = [rows for rows, then in pairwise(folders) if not _begins_with(then, rows)]
    return recording_of(_arguments(_joined([*once, folders[-1]], str(source)), str(source)), str(source))


def _joined(pieces: list[Rows], what: str) -> Rows:
    """Concatenates the rows of all pieces, in the columns that all of them have."""
    shared = [name for name in pieces[0] if all(name in piece for piece in pieces) and name not in IDLE]
    try:
        return {name: mapped(lambda *parts: np.concatenate(parts), *(p[name] for p in pieces)) for name in shared}
    except (ValueError, KeyError) as error:
        raise DatasetError(f"{what}: files differ in what they hold: {error}.") from error


def _begins_with(rows: Rows, others: Rows) -> bool:
    """Whether a folder begins with the content of another: RLlib repeatedly writes everything that it has sampled."""
    if "eps_id" not in rows or "eps_id" not in others:
        return False
    steps = len(others["rewards"])
    return all(np.array_equal(rows[name][:steps], others[name]) for name in ("eps_id", "actions", "rewards"))


def _arguments(rows: Rows, what: str) -> dict[str, Any]:
    """Rows by the usual names."""
    if missing := [name for name in ("obs", "actions", "rewards") if name not in rows]:
        raise DatasetError(f"{what} has no {missing[0]!r}: it has {sorted(rows)}. Name columns by input_read_schema.")
    if "eps_id" in rows:
        _, first, codes = np.unique(rows["eps_id"].astype(str), return_index=True, return_inverse=True)
        rows["eps_id"] = np.argsort(np.argsort(first))[codes.reshape(-1)]  # episodes in the order of their first steps
    known = {USUAL[NAMES[name]]: array for name, array in rows.items() if name in NAMES}
    others = {name: array for name, array in rows.items() if name not in NAMES and not isinstance(array, dict)}
    return {**known, **numeric(others, len(rows["rewards"]), what)}


# -- columns -----------------------------------------------------------------------------------------------------------


def _columns(source: Source, path: Path, what: str) -> Iterator[Rows]:
    yield columns_of(path, what, {str(column): name for name, column in _own(source).items()}, IDLE)


def columns_of(
    path: Path, what: str, names: Mapping[str, str] = MappingProxyType({}), without: Set[str] = frozenset()
) -> Rows:
    """Reads the columns of a Parquet file that can be learned from: numbers, lists of them, names, packed arrays.

    Args:
        path: path of the file.
        what: its name in messages.
        names: other names for columns.
        without: names that are not read.

    Raises:
        DatasetError: it is damaged, or would fill the memory.
    """
    pa, _ = libraries()
    table, size = table_of(path, what, lambda name: True, _holds_numbers), path.stat().st_size
    rows: Rows = {}
    for column in table.column_names:
        name = names.get(column, column)
        if name in without:
            continue
        values = _values(pa, table[column].combine_chunks(), f"{what}: {column}", table.field(column), size)
        if values is not None:
            rows[name] = values
    return rows


def _own(source: Source) -> dict[str, Any]:
    """RLlib's names -> columns that are called otherwise."""
    return {name: source.columns[meaning] for name, meaning in NAMES.items() if meaning in source.columns}


def _holds_numbers(pa: Any, found: Any) -> bool:
    """Whether a type consists of numbers, lists of numbers, or structs of such parts."""
    if isinstance(found, pa.BaseExtensionType):
        return _holds_numbers(pa, found.storage_type)
    if pa.types.is_struct(found):
        return all(_holds_numbers(pa, field.type) for field in found)
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    return _holds_numbers(pa, found.value_type) if is_list else is_number(pa, found)


def _values(pa: Any, column: Any, what: str, about: Any = None, size: int = 0) -> Any:
    """A column as an array [N, ...], or a dict of such; ``None``: it holds nothing that can be learned from."""
    shape = None
    if isinstance(column, pa.ExtensionArray):
        shape, column = getattr(column.type, "shape", None), column.storage
    elif about is not None and about.metadata and b"ARROW:extension:metadata" in about.metadata:
        shape = json.loads(about.metadata[b"ARROW:extension:metadata"])
    kind = column.type
    if is_number(pa, kind):
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_struct(kind):
        parts = {field.name: _values(pa, column.field(n), f"{what}.{field.name}") for n, field in enumerate(kind)}
        return None if any(part is None for part in parts.values()) else parts
    if pa.types.is_dictionary(kind):
        return _texts(column.to_pylist(), what, size)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None
    rows, inner = len(column), column.flatten()
    lengths = {len(item) for item in column} if not pa.types.is_fixed_size_list(kind) else {kind.list_size}
    if len(lengths) != 1:
        raise DatasetError(f"{what} has rows of {sorted(lengths)[:4]} values: all must have as many.")
    flat = _values(pa, inner, what)
    if not isinstance(flat, np.ndarray):
        return None
    array = flat.reshape(rows, -1 if rows else 0, *flat.shape[1:])
    return array if shape is None else array.reshape(rows, *shape)


def _texts(values: list[Any], what: str, size: int) -> Any:
    """Packed arrays [N, ...] of a file of so many bytes; names of episodes as they are."""
    if not (values and isinstance(values[0], str) and values[0].startswith("BCJN")):  # the mark of LZ4 frames
        return np.asarray([str(value) for value in values])
    first = unpacked(values[0], what)
    parts = first.values() if isinstance(first, Mapping) else [first]
    check_unpacked(what, len(values) * sum(np.asarray(part).nbytes for part in parts), size)
    return _stacked([first, *(unpacked(value, what) for value in values[1:])])


def _stacked(values: list[Any]) -> Any:
    """Values of N steps as one array, or as a dict of arrays."""
    if isinstance(values[0], Mapping):
        return {str(key): _stacked([value[key] for value in values]) for key in values[0]}
    return np.stack([np.asarray(value) for value in values])


def unpacked(text: Any, what: str) -> Any:
    """Unpacks a value that RLlib packed: a pickle, compressed by LZ4, as base64.

    Raises:
        DatasetError: the text is damaged, or would fill the memory.
        ImportError: lz4 is missing.
    """
    try:
        import lz4.frame
    except ImportError as error:
        raise ImportError(f"{what} is packed by LZ4, which needs lz4: pip install 'polyak[offline]'.") from error
    try:
        packed = base64.b64decode(text, validate=True)
        most = allowed(len(packed))
        data = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=most + 1)
    except (binascii.Error, RuntimeError, ValueError, TypeError) as error:
        raise DatasetError(f"{what} is damaged: {error}.") from error
    if len(data) > most:
        raise DatasetError(f"{what} would unpack to more than {most:,} bytes, from {len(packed):,}.")
    return resolve_name(formats.PICKLES)(data)


# -- sample batches ----------------------------------------------------------------------------------------------------


def _sample_batches(source: Source, path: Path, what: str) -> Iterator[Rows]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"{what}: line {number}"
            batch = plain_json.parse_object(line, place)
            if batch.get("type") == "MultiAgentBatch":
                policies = batch["policy_batches"]
                if len(policies) != 1:
                    raise DatasetError(f"{place} is of {len(policies)} agents, {sorted(policies)}: one is read.")
                (batch,) = policies.values()
            yield {
                name: unpacked(values, f"{place}: {name}") if isinstance(values, str) else np.asarray(values)
                for name, values in batch.items()
                if name not in IDLE and isinstance(values, str | list)
            }


# -- episodes ----------------------------------------------------------------------------------------------------------


def _episodes(source: Source, path: Path, what: str) -> Iterator[Rows]:
    try:
        import msgpack
    except ImportError as error:
        raise ImportError("RLlib's episodes need msgpack: pip install 'polyak[offline]'.") from error
    for row, item in enumerate(table_of(path, what, lambda name: True, _holds_numbers)["item"].to_pylist()):
        place = f"{what}: row {row}"
        try:
            state = msgpack.unpackb(item, object_hook=_array, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise DatasetError(f"{place} is damaged: {error}.") from error
        yield _steps(state, place)


def _array(found: Any) -> Any:
    """An array as msgpack-numpy writes it; ``None`` of Python objects, which it pickles."""
    held = found.get(b"nd", found.get("nd"))
    if held is None:
        return found
    entries = {key.decode() if isinstance(key, bytes) else key: value for key, value in found.items()}
    kind = entries.get("kind", b"")
    if kind in (b"O", "O"):
        return None
    name = entries["type"]
    dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
    if dtype.hasobject:
        return None
    array = np.frombuffer(entries["data"], dtype)
    return array.reshape(entries["shape"]) if held else array[0]


def _steps(state: Mapping[str, Any], what: str) -> Rows:
    """The steps of an episode, or of a piece of one."""
    seen = _of_buffer(state["observations"])
    actions, rewards = _of_buffer(state["actions"]), np.asarray(_of_buffer(state["rewards"]), np.float64)
    steps = len(rewards)
    if not steps:
        return {}
    ends = {name: np.zeros(steps, bool) for name in ("terminateds", "truncateds")}
    ends["terminateds"][-1], ends["truncateds"][-1] = bool(state["is_terminated"]), bool(state["is_truncated"])
    if any(len(array) != steps + 1 for array in (seen.values() if isinstance(seen, dict) else [seen])):
        raise DatasetError(f"{what} is damaged: an episode of {steps} steps has not one observation more.")
    return {
        "obs": mapped(lambda array: array[:-1], seen),
        "actions": actions,
        "rewards": rewards,
        "new_obs": mapped(lambda array: array[1:], seen),
        **ends,
        "eps_id": np.full(steps, str(state["id_"])),
        "t": int(state["t_started"]) + np.arange(steps),
    }


def _of_buffer(buffer: Mapping[str, Any]) -> Any:
    """Returns the content of a buffer without its lookback."""
    data, back = buffer["data"], int(buffer["lookback"])
    if isinstance(data, list | tuple):
        return _stacked(list(data[back:])) if len(data) > back else np.zeros(0)
    return mapped(lambda array: np.asarray(array)[back:], data)
