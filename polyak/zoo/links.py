"""Links in run folders: a foreign folder must not lead to other files of this machine."""

from __future__ import annotations

from pathlib import Path

from polyak.zoo.errors import ZooError


def inside(path: Path, folder: Path) -> bool:
    """Whether `path` is in `folder` when all links below the folder are followed; the folder may be a link itself."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that lead in a circle
        return False


def check_inside(path: Path, folder: Path) -> None:
    """Raise ZooError if `path`, a file of the run `folder`, is a link to another place, or is behind one."""
    if not inside(path, folder):
        raise ZooError(f"{path} is a link that leads out of {folder}: it is not read. Put a copy of the file there.")


def check_file(path: Path, folder: Path) -> None:
    """`check_inside`, and raise ZooError if it is a pipe or a device, which could be read without an end."""
    check_inside(path, folder)
    if path.exists() and not path.is_file():
        raise ZooError(f"{path} is a folder, a pipe or a device, not a file: it is not read.")
