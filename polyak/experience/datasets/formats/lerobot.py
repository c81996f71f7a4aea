"""LeRobot's folders: ``meta/info.json``, and ``data/chunk-*/*.parquet`` with a row for each step.

Observations are ``observation.state`` alone, or a dict of all columns ``observation.*`` that are numbers. Films and
images are not read. ``next.done`` and ``next.truncated`` mark how episodes end, ``episode_index`` where.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.reading import plain_json
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.parquet import libraries
from polyak.experience.datasets.formats.rllib import columns_of
from polyak.experience.datasets.formats.source import Source, damage_named
from polyak.experience.datasets.named import recording_of
from polyak.warning import warn_user

ABOUT = Path("meta", "info.json")
NAMES = {
    "action": "actions",
    "next.reward": "rewards",
    "next.done": "dones",
    "next.truncated": "truncations",
    "episode_index": "episodes",
    "frame_index": "steps",
}
"""LeRobot's names -> those of :data:`~polyak.experience.datasets.named.NAMES`."""
_SEEN = "observation."


def recognises(source: Source) -> bool:
    """A folder with a description and data beside it."""
    return (source.path / ABOUT).is_file() and (source.path / "data").is_dir()


def read(source: Source) -> RecordedData:
    """Read all episodes, in order."""
    libraries()
    what = f"{source}: its {ABOUT.as_posix()}"
    with (source.path / ABOUT).open("rb") as file:
        about = plain_json.parse_object(file.read(plain_json.MOST_BYTES + 1), what)
    pieces = list(_files(source))
    if not pieces:
        raise DatasetError(f"{source} has no data/chunk-*/*.parquet.")
    if missing := [name for name in ("action", "episode_index") if name not in pieces[0]]:
        raise DatasetError(f"{source} has no column {missing[0]!r}: it has {sorted(pieces[0])}.")
    if any(piece.keys() != pieces[0].keys() for piece in pieces):
        raise DatasetError(f"{source}: its files differ in the columns that they have.")
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    rows = len(columns["action"])
    if about.get("total_frames", rows) != rows:
        raise DatasetError(f"{what} speaks of {about['total_frames']!r:.40} steps, and its files have {rows:,}.")
    films = [name for name in about.get("features", {}) if name.startswith(_SEEN) and name not in columns]
    if films:
        warn_user(f"{source}: {sorted(films)} are left out: films and images are not read.")
    return recording_of(_arrays(columns, rows, str(source)), str(source))


def _files(source: Source) -> Iterator[dict[str, np.ndarray]]:
    """Yields the numeric columns of each file."""
    for path in sorted((source.path / "data").glob("chunk-*/*.parquet")):
        what = f"path={str(path)!r}"
        with damage_named(what):
            found = columns_of(path, what)
            yield {name: array for name, array in found.items() if _holds_numbers(array)}


def _holds_numbers(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "biuf"


def _arrays(columns: dict[str, np.ndarray], rows: int, source: str) -> dict[str, Any]:
    """Arrays by the names that datasets have."""
    seen = {name.removeprefix(_SEEN): array for name, array in columns.items() if name.startswith(_SEEN)}
    if not seen:
        raise DatasetError(f"{source} has no column {_SEEN}* of numbers: it has {sorted(columns)}.")
    arrays: dict[str, Any] = {
        NAMES.get(name, name): array[:, 0] if array.shape[1:] == (1,) and _is_one(name, array) else array
        for name, array in columns.items()
        if not name.startswith(_SEEN)
    }
    arrays["observations"] = seen if len(seen) > 1 else next(iter(seen.values()))
    if "rewards" not in arrays:
        warn_user(f"{source} has no 'next.reward': every reward is 0, which only algorithms that clone can learn from.")
        arrays["rewards"] = np.zeros(rows, np.float32)
    return arrays


def _is_one(name: str, array: np.ndarray) -> bool:
    """Whether [N, 1] holds one number of each step; for an action it does if it is a choice."""
    return name != "action" or array.dtype.kind in "iu"
