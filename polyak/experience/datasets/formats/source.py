"""A file or folder that a dataset is to be read from."""

from __future__ import annotations

import struct
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gymnasium import spaces

from polyak.envs.space_json import decode_space
from polyak.experience.datasets.episodes import DatasetError
from polyak.experience.datasets.formats import hdf5
from polyak.experience.datasets.formats.own_names import Columns
from polyak.warning import printable

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"
HEAD = 4096
MISUNDERSTOOD = (KeyError, TypeError, AttributeError, IndexError, AssertionError, OverflowError, RecursionError)
"""The errors that missing parts, or parts of another type, cause."""


@dataclass
class Source:
    """The place of a dataset, and the options for reading it."""

    given: Any
    """A path, a Minari dataset's id, or a DataFrame of pandas or polars."""
    in_memory: bool | None = None
    """Read arrays into memory, or leave them in the file; None: as they fit."""
    trust: bool = False
    """Also read pickles with other content than replay buffers, which can run any code."""
    observation_space: spaces.Space | None = None
    """For files that cannot be read without it; likewise ``action_space``."""
    action_space: spaces.Space | None = None
    columns: Mapping[str, Columns] = field(default_factory=dict)
    """For tables: the columns with unusual names, by their meaning."""

    @property
    def path(self) -> Path:
        return Path(self.given).expanduser()

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @cached_property
    def start(self) -> bytes:
        """The first bytes of the file; empty for a folder."""
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
        except (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, ValueError, OSError, NotImplementedError):
            return frozenset()

    @cached_property
    def keys(self) -> frozenset[str]:
        """The names at the top of an HDF5 file; none of other files."""
        if not self.start.startswith(HDF5):
            return frozenset()
        return hdf5.names(self.path, str(self))

    @property
    def hint(self) -> str:
        """A description of the file's content for messages, where it is known."""
        if self.members:
            return f" It is a zip of {sorted(self.members)[:5]}."
        if self.keys:
            return f" It is an HDF5 file with the keys {sorted(self.keys)[:10]}."
        return " It is an empty file." if self.path.is_file() and not self.start else ""

    def __str__(self) -> str:
        return called(self.given)


def is_frame(given: Any) -> bool:
    """Whether an object is a DataFrame of pandas or polars, without importing them."""
    libraries = (sys.modules.get(name) for name in ("pandas", "polars"))
    return any(isinstance(given, library.DataFrame) for library in libraries if library is not None)


def called(given: Any) -> str:
    """Returns the name of a path or a table for messages."""
    return f"path=<DataFrame of {len(given):,} rows>" if is_frame(given) else f"path={str(given)!r}"


@contextmanager
def damage_named(what: str) -> Iterator[None]:
    """Converts errors that the data cause within the block to a DatasetError that names their source.

    Raises:
        DatasetError: in place of Python's or numpy's error about unusable data.
    """
    try:
        yield
    except DatasetError as error:
        text = str(error)
        error.args = (printable(text if what in text else f"{what}: {text}"),)
        raise
    except MISUNDERSTOOD as error:
        reason = printable(f"{type(error).__name__}: {error}", most=200)
        raise DatasetError(f"{what} is damaged: it cannot be understood ({reason}).") from error
    except ValueError as error:
        if type(error).__module__.partition(".")[0] == "polyak":  # these name the cause already
            raise
        if what in str(error):
            raise DatasetError(printable(str(error))) from error
        raise DatasetError(printable(f"{what} cannot be read: {error}")) from error


def decoded_space(about: dict[str, Any], name: str, what: str) -> spaces.Space:
    """Returns the space that a file's description has under ``name``.

    Raises:
        DatasetError: the space is missing or invalid.
    """
    try:
        return decode_space(about[name])
    except (ValueError, *MISUNDERSTOOD) as error:
        raise DatasetError(
            f"{what} is damaged: its {name} cannot be understood ({type(error).__name__}: {error!s:.200})."
        ) from error


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
