"""Limits on the size that a file may unpack to.

A file may unpack to :data:`ALWAYS_ALLOWED` bytes, or to :data:`GROWTH` times its own size if that is more. Data that is
not compressed stays far below this limit. Stacked images that are stored with their successors shrink to a hundredth;
zeros, as in files that are made to exhaust the memory, to a thousandth.

The environment variable ``POLYAK_MAX_UNPACKED`` allows more, for example for almost empty images: a number of bytes,
such as ``20e9``.
"""

from __future__ import annotations

import os
from pathlib import Path

ALWAYS_ALLOWED = 64 * 2**20
GROWTH = 200
VARIABLE = "POLYAK_MAX_UNPACKED"


def allowed(size: int) -> int:
    """The bytes that a file of ``size`` bytes may unpack to.

    Raises:
        ValueError: the environment variable holds no number of bytes.
    """
    text = os.environ.get(VARIABLE, "0")
    try:
        by_user = int(float(text))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{VARIABLE}={text!r} is not a number of bytes: give one such as 20e9.") from error
    return max(ALWAYS_ALLOWED, GROWTH * size, by_user)


def check_unpacked(what: str, needed: int, size: int) -> None:
    """Refuse content that would unpack to more than a file of its size may.

    Args:
        what: the file, or the part of it; begins the message.
        needed: bytes in memory.
        size: bytes of the file.

    Raises:
        ValueError: it is too much.
    """
    if needed > (most := allowed(size)):
        raise ValueError(
            f"{what} would unpack to {needed:,} bytes, from a file of {size:,}: that is more than the {most:,} that "
            f"such a file may fill. If you trust it, set the environment variable {VARIABLE} to at least {needed}."
        )


def check_regular(path: Path, what: str) -> None:
    """Refuse pipes, devices and sockets, which can be read without an end, or never.

    Raises:
        ValueError: there is something of that name, but no file.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{what} is a folder, a pipe or a device, not a file.")
