"""Checks that a folder is safe to load libraries from: its contents are run, so no other user may write to it."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path


def objection(path: Path) -> str | None:
    """Returns the reason why other users could write to or replace a file or folder; None if they cannot, or it is
    missing.

    It must belong to this user or root, and neither its group nor everyone may write to it; a group with no other
    member counts as the user. A parent folder may be open to everyone only if the sticky bit protects users' files from
    each other, as in ``/tmp``. On Windows, which has other permissions, the result is always None.
    """
    if not hasattr(os, "getuid"):
        return None
    try:
        path = path.resolve()
        found = path.stat() if path.exists() else None
        around = [folder for folder in path.parents if folder.exists()]
        open_ = [folder for folder in around if folder.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH]
    except (OSError, RuntimeError) as error:  # circular links, for example
        return f"it cannot be looked at ({error})"
    if open_:
        return f"every user may exchange what is in {open_[0]}"
    if found is None:
        return None
    if found.st_uid not in (os.getuid(), 0):
        return f"it belongs to another user (number {found.st_uid})"
    if found.st_mode & stat.S_IWOTH:
        return "every user may write to it"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"its group (number {found.st_gid}) may write to it"
    return None


def _is_private(group: int) -> bool:
    """Whether a group contains this user only; many systems create such a group for every user."""
    import grp
    import pwd

    try:
        me, theirs = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return me.pw_gid == group and theirs.gr_name == me.pw_name and not set(theirs.gr_mem) - {me.pw_name}


def private_folder() -> Path:
    """Returns a folder for temporary files that only this user can write to, the same in every process of the machine
    if possible, otherwise one that is deleted when the process ends."""
    name = f"polyak-{os.getuid()}" if hasattr(os, "getuid") else "polyak"
    folder = Path(tempfile.gettempdir()) / name
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_symlink() and objection(folder) is None and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return _folder_of_this_process()


@cache
def _folder_of_this_process() -> Path:
    folder = tempfile.mkdtemp(prefix="polyak-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
