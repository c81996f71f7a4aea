"""HDF5 files, checked before anything in them is read.

Such a file may refer to others: by external links, by arrays that are stored outside, by virtual arrays composed of
other files. All of these are refused at any depth, so that only the file's own content is read. The size of its arrays
in memory must keep within :mod:`~polyak.envs.reading.limits`: chunks that were never written take no room on disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.reading.limits import check_regular, check_unpacked
from polyak.experience.datasets.episodes import DatasetError

DEEPEST = 32
"""Groups within each other."""
_NUMBERS = "biufc"


@contextmanager
def opened(path: Path, what: str) -> Iterator[Any]:
    """Opens the file at ``path``, after checking all of it.

    Errors within the block that a damaged file causes become a DatasetError.

    Raises:
        DatasetError: it is damaged, names other files, or claims too much; the message begins with ``what``.
        ImportError: h5py is missing.
    """
    library = h5py()
    with _damage_named(what):
        check_regular(path, what)
        with library.File(path, "r") as file:
            _Survey(library, what, path.stat().st_size).check(file)
            yield file


def names(path: Path, what: str) -> frozenset[str]:
    """Returns the names at the top level of the file at ``path``; their objects are not read.

    Raises:
        DatasetError: it is damaged.
        ImportError: h5py is missing.
    """
    library = h5py()
    with _damage_named(what), library.File(path, "r") as file:
        return frozenset(file.keys())


@contextmanager
def _damage_named(what: str) -> Iterator[None]:
    try:
        yield
    except DatasetError:
        raise
    except (OSError, KeyError, RuntimeError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise DatasetError(f"{what} is damaged: {' '.join(str(error).split()) or type(error).__name__}.") from error
    except ValueError as error:
        text = str(error)
        raise DatasetError(text if text.startswith(what) else f"{what} is damaged: {text}.") from error


class _Survey:
    """Checks the content of a file by its links and headers alone."""

    def __init__(self, library: Any, what: str, size: int) -> None:
        self.library, self.what, self.size = library, what, size
        self.needed = 0
        self.groups: set[Any] = set()

    def check(self, file: Any) -> None:
        waiting = [(file, 0)]
        while waiting:
            group, depth = waiting.pop()
            self._check_group(group, depth)
            for name in group:
                where = f"{group.name.rstrip('/')}/{name}"
                self._check_link(group.get(name, getlink=True), where)
                item = group[name]
                if isinstance(item, self.library.Group):
                    waiting.append((item, depth + 1))
                elif isinstance(item, self.library.Dataset):
                    self._check_dataset(item, where)

    def _check_group(self, group: Any, depth: int) -> None:
        info = self.library.h5o.get_info(group.id)
        if (info.fileno, info.addr) in self.groups:
            raise DatasetError(f"{self.what} is refused: its group {group.name!r} is linked to from several places.")
        if depth > DEEPEST:
            raise DatasetError(f"{self.what} is refused: its groups are nested more than {DEEPEST} deep.")
        self.groups.add((info.fileno, info.addr))

    def _check_link(self, link: Any, where: str) -> None:
        if isinstance(link, self.library.ExternalLink):
            raise DatasetError(f"{self.what} is refused: {where!r} is a link to another file, {link.filename!r}.")
        if isinstance(link, self.library.SoftLink):
            raise DatasetError(f"{self.what} is refused: {where!r} is a link to {link.path!r}, not data.")

    def _check_dataset(self, dataset: Any, where: str) -> None:
        made = dataset.id.get_create_plist()
        if made.get_external_count():
            name = made.get_external(0)[0].decode(errors="replace")
            raise DatasetError(f"{self.what} is refused: {where!r} is stored in another file, {name!r}.")
        if made.get_layout() == self.library.h5d.VIRTUAL:
            raise DatasetError(f"{self.what} is refused: {where!r} is virtual, put together from other files.")
        chunk = dataset.chunks or ()  # read whole, however few of its numbers there are
        shape = dataset.shape or ()
        numbers = max(math.prod(max(length, 1) for length in shape), math.prod(chunk))
        self.needed += numbers * max(dataset.id.get_type().get_size(), 1)
        check_unpacked(f"{self.what}: what it holds up to {where!r}", self.needed, self.size)


def array(dataset: Any) -> np.ndarray:
    """Reads a whole array; returns an empty array of objects, from which nothing can be learned, if it holds no
    numbers."""
    if dataset.shape is None or dataset.dtype.kind not in _NUMBERS:
        return np.empty(0, object)
    return np.asarray(dataset[()])


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
