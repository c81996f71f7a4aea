"""Folders and files that are named by a user: where one cannot be written, the error says which and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(path: str | os.PathLike[str], argument: str = "path") -> Iterator[None]:
    """Convert what the system says of a file or folder that cannot be made to an error that names it.

    Args:
        path: the file or folder that is made within the block.
        argument: what the user gave it as.

    Raises:
        OSError: of the class that the system's error has, with the argument, its value, the reason and the fix.
        ValueError: no file can have that name.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        kind = type(error) if isinstance(error, OSError) else ValueError
        raise kind(
            f"{argument}={str(path)!r} cannot be written: {_reason(Path(path), error)}. Name a place in a folder that "
            "exists or can be made, and that you may write to."
        ) from error


def make_folder(folder: str | os.PathLike[str], argument: str = "path") -> None:
    """Make a folder, with those above it, unless it is there; errors as of :func:`writing`."""
    with writing(folder, argument):
        os.makedirs(folder, exist_ok=True)


def _reason(path: Path, error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    there = next((place for place in (path, *path.parents) if os.path.lexists(place)), path)
    if isinstance(error, FileExistsError | NotADirectoryError) and not there.is_dir():
        return f"{str(there)!r} is a file, not a folder"
    if isinstance(error, IsADirectoryError):
        return f"{str(there)!r} is a folder"
    return f"{str(error.strerror).lower()} in {str(there)!r}"
