"""HDF5 in D4RL's layout (arXiv:2004.07219): flat arrays under the usual names, and further ones in ``infos``.

Without ``next_observations`` the successor of a step is the next row's observation, which belongs to another episode
after a time limit: that step alone is left out.
"""

from __future__ import annotations

from typing import Any

from polyak.experience.datasets.episodes import RecordedData
from polyak.experience.datasets.formats import hdf5
from polyak.experience.datasets.formats.source import Source
from polyak.experience.datasets.named import NAMES, recording_of

_OBSERVED = frozenset(NAMES["observations"].split())
_NESTED = frozenset([*NAMES["observations"].split(), *NAMES["next_observations"].split()])


def recognises(source: Source) -> bool:
    """An HDF5 file with observations at its top."""
    return not source.keys.isdisjoint(_OBSERVED)


def read(source: Source) -> RecordedData:
    """Read all arrays of the file; those in ``infos`` become columns."""
    arrays: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    library = hdf5.h5py()
    with hdf5.opened(source.path, str(source)) as file:
        for name, item in file.items():
            if isinstance(item, library.Dataset):
                arrays[name] = hdf5.array(item)
            elif name in _NESTED:
                arrays[name] = _arrays(library, item)
            elif name == "infos":
                extra = _arrays(library, item)
    arrays = {name: array for name, array in arrays.items() if getattr(array, "ndim", 1)}
    return recording_of({**extra, **arrays}, str(source))


def _arrays(library: Any, group: Any) -> dict[str, Any]:
    """Path -> array, of all that is in a group."""
    found: dict[str, Any] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, library.Dataset):
            found[name] = hdf5.array(item)

    group.visititems(take)
    return found
