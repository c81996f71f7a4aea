"""d3rlpy's HDF5 (version 2.1): ``observations_0``, ``actions_0``, ``rewards_0``, ``terminated_0`` and so on.

It keeps no observation after the last step, so that the last step of an episode that was cut short is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.experience.datasets.episodes import DatasetError, RecordedData, assemble
from polyak.experience.datasets.formats import hdf5
from polyak.experience.datasets.formats.source import Source


def recognises(source: Source) -> bool:
    """An HDF5 file with the actions of a first episode."""
    return "actions_0" in source.keys


def read(source: Source) -> RecordedData:
    """Read all episodes, in order."""
    observations: list[Any] = []
    actions, rewards, ends, terminated = [], [], [], []
    with hdf5.opened(source.path, str(source)) as file:
        for number in range(_count(file, source)):
            observations.append(_observations(file, number))
            actions.append(hdf5.array(file[f"actions_{number}"]))
            rewards.append(hdf5.array(file[f"rewards_{number}"]).reshape(-1))
            ends.append(len(rewards[-1]))
            terminated.append(bool(hdf5.array(file[f"terminated_{number}"])))
            if not len(actions[-1]) == ends[-1] > 0:
                raise DatasetError(
                    f"{source} is damaged: actions_{number} has {len(actions[-1])} rows, rewards_{number} {ends[-1]}."
                )
    last = np.cumsum(ends) - 1
    terminal, cut = np.zeros(last[-1] + 1, bool), np.zeros(last[-1] + 1, bool)
    terminal[last], cut[last] = terminated, ~np.array(terminated)
    return assemble(_joined(observations), _choices(np.concatenate(actions)), np.concatenate(rewards), terminal, cut)


def _count(file: Any, source: Source) -> int:
    """Returns the number of episodes in the file, after checking it against the number of arrays."""
    said = hdf5.array(file["num_episodes"])
    number = int(said) if said.shape == () and said.dtype.kind in "iu" else 0
    if not 0 < number <= len(file):
        raise DatasetError(f"{source} is damaged: num_episodes is {said!s:.80}, of {len(file)} arrays.")
    return number


def _observations(file: Any, number: int) -> Any:
    """[T, ...], or a tuple of such arrays."""
    name = f"observations_{number}"
    if name in file:
        return hdf5.array(file[name])
    parts: list[Any] = []
    while (part := f"{name}_{len(parts)}") in file:
        parts.append(hdf5.array(file[part]))
    if not parts:
        raise DatasetError(f"the file has no {name}.")
    return tuple(parts)


def _joined(episodes: list[Any]) -> Any:
    if isinstance(episodes[0], tuple):
        return tuple(np.concatenate(part) for part in zip(*episodes, strict=True))
    return np.concatenate(episodes)


def _choices(actions: np.ndarray) -> np.ndarray:
    """Numbers of choices [N, 1] as [N]."""
    return actions[:, 0] if actions.dtype.kind in "iu" and actions.shape[1:] == (1,) else actions
