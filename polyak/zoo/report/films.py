"""Videos of a run folder as data URIs, so that a page carries them with it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

#: What browsers play, by the end of the file's name.
FILMS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


def data_uri(path: Path) -> str:
    """Return the file as a ``data:`` address. Raises OSError."""
    return f"data:{FILMS[path.suffix.lower()]};base64,{b64encode(path.read_bytes()).decode('ascii')}"


def within_limit(sizes: Iterable[tuple[str, int]], limit: int) -> set[str]:
    """Choose which to embed: each in turn that still fits.

    Args:
        sizes: names and bytes, the first wanted most.
        limit: bytes of all together.
    """
    chosen, left = set(), limit
    for name, size in sizes:
        if size <= left:
            chosen.add(name)
            left -= size
    return chosen
