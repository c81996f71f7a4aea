"""A file or folder that a dataset is to be read from."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gymnasium import spaces

from polyak.data.datasets.formats.own_names import Columns

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"
HEAD = 4096


@dataclass
class Source:
    """Where a dataset is, and how to read it."""

    given: Any
    """A path, or a Minari dataset's id."""
    in_memory: bool | None = None
    """Read arrays into memory, or leave them in the file; None: as they fit."""
    trust: bool = False
    """Also read pickles that hold other things than replay buffers do, which can run any code."""
    observation_space: spaces.Space | None = None
    """For files that need it to be understood; so with the actions'."""
    action_space: spaces.Space | None = None
    columns: Mapping[str, Columns] = field(default_factory=dict)
    """Of tables: what columns are whose names do not say so."""

    @property
    def path(self) -> Path:
        return Path(self.given).expanduser()

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @cached_property
    def start(self) -> bytes:
        """Its first bytes; none of a folder."""
        if not self.path.is_file():
            return b""
        with self.path.open("rb") as file:
            return file.read(HEAD)

    @cached_property
    def members(self) -> frozenset[str]:
        """The names in a zip; none of other files."""
        if not self.start.startswith(ZIP):
            return frozenset()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return frozenset(archive.namelist())
        except zipfile.BadZipFile:
            return frozenset()

    @cached_property
    def keys(self) -> frozenset[str]:
        """The names at the top of an HDF5 file; none of other files."""
        if not self.start.startswith(HDF5):
            return frozenset()
        with h5py().File(self.path, "r") as file:
            return frozenset(file.keys())

    @property
    def hint(self) -> str:
        """What it is instead, where that is known."""
        if self.members:
            return f" It is a zip of {sorted(self.members)[:5]}."
        if self.keys:
            return f" It is an HDF5 file with the keys {sorted(self.keys)[:10]}."
        return " It is an empty file." if self.path.is_file() and not self.start else ""

    def __str__(self) -> str:
        return f"path={str(self.given)!r}"


def h5py() -> Any:
    """The library for HDF5.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need h5py: pip install 'polyak[offline]'.") from error
    return h5py


def pandas() -> Any:
    """The library for tables.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("Tables need pandas: pip install 'polyak[offline]'.") from error
    return pandas
