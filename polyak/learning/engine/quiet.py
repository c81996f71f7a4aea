"""Suppression of torch's internal warnings.

``warnings.catch_warnings`` replaces the filters of the whole process: it would suppress warnings of other threads, and
two threads that leave their blocks in the wrong order would restore the wrong filters. So one filter is installed
permanently, and applies only to threads inside :func:`quiet`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


class _QuietThreads(threading.local):
    """Matches every message in a thread that is inside :func:`quiet`, and none in others."""

    depth = 0

    def match(self, text: str) -> bool:
        return self.depth > 0


_QUIET = _QuietThreads()
_FILTER = ("ignore", _QUIET, Warning, None, 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings in this thread."""
    filters = cast("list[Any]", warnings.filters)
    if not filters or filters[0] is not _FILTER:  # the first matching filter decides
        filters[:] = [_FILTER, *(each for each in filters if each is not _FILTER)]
    _QUIET.depth += 1
    try:
        yield
    finally:
        _QUIET.depth -= 1
