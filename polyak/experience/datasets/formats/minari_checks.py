"""Checks of the data that Minari's library reads without checking."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from polyak.envs.reading import plain_json
from polyak.envs.reading.limits import allowed, check_regular, check_unpacked
from polyak.experience.datasets.episodes import DatasetError
from polyak.experience.datasets.formats import hdf5

ABOUT = "metadata.json"
_FILE = "main_data.hdf5"
_SPACES = ("observation_space", "action_space")
_TABLES = (".arrow", ".parquet")
_AT_ONCE = 64
"""Compressed images that are looked at together."""


def check(folder: Path, what: str) -> None:
    """Refuse a folder whose description, or data, would take more memory than its files can rightly fill.

    Raises:
        DatasetError: it does; or it refers to other files, is damaged, or lacks its spaces.
    """
    try:
        about = _description(folder, what)
        episodes = plain_json.whole(about, "total_episodes", f"{what}: its {ABOUT}")
        for name in _SPACES:
            _check_space(about.get(name), f"{what}: the {name} in its {ABOUT}")
        if about.get("data_format") != "hdf5":
            _check_tables(folder, episodes, what)
            return
    except ValueError as error:
        raise error if isinstance(error, DatasetError) else DatasetError(str(error)) from error
    with hdf5.opened(folder / _FILE, what) as file:
        if missing := [number for number in range(min(episodes, len(file) + 1)) if f"episode_{number}" not in file]:
            raise DatasetError(f"{what} is damaged: it says that it has {episodes} episodes, but has no {missing[0]}.")
        _check_images(file, (folder / _FILE).stat().st_size, what)


def _description(folder: Path, what: str) -> dict[str, Any]:
    path = folder / ABOUT
    check_regular(path, f"{what}: its {ABOUT}")
    with path.open("rb") as file:
        about = plain_json.parse_object(file.read(plain_json.MOST_BYTES + 1), f"{what}: its {ABOUT}")
    if not about.get(_SPACES[0]) or not about.get(_SPACES[1]):  # else its environment would be made here
        raise DatasetError(f"{what} does not say its spaces: write it again with a newer minari.")
    return about


def _check_space(text: Any, what: str) -> None:
    """Check that a description has a bound for each number of its shape, so that a small text cannot claim a large
    array."""
    if not isinstance(text, str):
        raise DatasetError(f"{what} is {text!r:.80}, not the text that Minari writes.")
    waiting = [plain_json.parse_object(text, what)]
    while waiting:
        space = waiting.pop()
        shape = space.get("shape", [])
        sizes = shape if isinstance(shape, list) else [shape]
        if not all(type(length) is int and length >= 0 for length in sizes) or math.prod(sizes) > len(text):
            raise DatasetError(f"{what} has the shape {shape!r:.80}, of which it does not say the bounds.")
        inner = space.get("subspaces", [])
        parts = list(inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else [])
        waiting += [part for part in parts if isinstance(part, dict)]


def _check_images(file: Any, size: int, what: str) -> None:
    """Check the sizes of images that were compressed one by one, which their first bytes hold."""
    library, needed = hdf5.h5py(), 0

    def count(name: str, item: Any) -> None:
        nonlocal needed
        if not isinstance(item, library.Dataset) or item.dtype.kind != "O":
            return
        for start in range(0, item.shape[0] if item.shape else 0, rows):
            for content in item[start : start + rows].reshape(-1):
                needed += _pixels(content)
            check_unpacked(f"{what}: what it holds up to {name!r}", needed, size)

    rows = max(1, min(_AT_ONCE, allowed(size) // max(size, 1)))
    file.visititems(count)


def _pixels(content: Any) -> int:
    """Bytes that an image in memory takes; of texts their own."""
    from PIL import Image, UnidentifiedImageError

    if getattr(content, "dtype", None) != "uint8":
        return len(content)
    try:
        with Image.open(io.BytesIO(content.tobytes())) as image:
            return len(content) + image.width * image.height * len(image.getbands())
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(f"an image is damaged: {error}.") from error


def _check_tables(folder: Path, episodes: int, what: str) -> None:
    """Check Minari's other formats: a folder of tables for each episode."""
    from pyarrow import ArrowException, parquet

    for number in range(episodes):
        paths = [path for path in folder.glob(f"{number}/*") if path.suffix in _TABLES]
        if not paths:
            raise DatasetError(f"{what} is damaged: it says that it has {episodes} episodes, but has no {number}.")
        for path in paths:
            check_regular(path, f"{what}: {path.name}")
            if path.suffix == ".arrow":  # which are not compressed
                continue
            try:
                with parquet.ParquetFile(path) as file:
                    values = sum(_values(file.metadata, n) for n in range(file.metadata.num_row_groups))
            except (ArrowException, OSError) as error:
                raise DatasetError(f"{what} is damaged: {path.name}: {error}.") from error
            check_unpacked(f"{what}: {path.name}", 8 * values, path.stat().st_size)


def _values(metadata: Any, number: int) -> int:
    group = metadata.row_group(number)
    return sum(int(group.column(column).num_values) for column in range(group.num_columns))
