"""Replay buffers that were saved: those of polyak, models with one inside, and pickles of Stable-Baselines3."""

from __future__ import annotations

from pkgutil import resolve_name

from polyak import formats
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.source import Source


def recognises(source: Source) -> bool:
    """Whether the source is a file that a reader of the table of formats reads."""
    return _reader(source) is not None


def read(source: Source) -> RecordedData:
    """Reads the whole buffer, by environments."""
    reader = _reader(source)
    if reader is None:
        raise DatasetError(f"{source} is no replay buffer.")
    return resolve_name(reader)(source)


def _reader(source: Source) -> str | None:
    members = source.members
    found = (reader for mark, reader in formats.EXPERIENCE_IN_ZIPS.items() if mark in members)
    begun = (reader for mark, reader in formats.EXPERIENCE.items() if source.start.startswith(mark))
    return next(found, None) or next(begun, None)
