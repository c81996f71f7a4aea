"""Untrusted zips: how long a list of members may be."""

from __future__ import annotations

import zipfile
from typing import IO, Any

MOST_LISTED = 4 * 2**20
"""Bytes of the list of members that a zip ends with. It is read whole, and takes ten times as much memory."""


def open_zip(file: IO[bytes], what: str) -> zipfile.ZipFile:
    """Opens a zip for reading, after checking the size of its list of members.

    Args:
        file: open for reading.
        what: the name of the file in messages.

    Raises:
        ValueError: the list is longer than :data:`MOST_LISTED`.
        zipfile.BadZipFile: it is no zip.
    """
    reader: Any = zipfile
    try:
        end = reader._EndRecData(file)  # ZipFile itself reads this record first
    except OSError as error:
        raise zipfile.BadZipFile(str(error)) from error
    if end and end[reader._ECD_SIZE] > MOST_LISTED:
        raise ValueError(
            f"{what} is damaged: its list of members has {end[reader._ECD_SIZE]:,} bytes. At most {MOST_LISTED:,} are "
            "read."
        )
    return zipfile.ZipFile(file)
