"""Infos as columns: what Stable-Baselines3's vectorised environments say in one dict for each environment.

Shape letters: N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Infos = Sequence[dict[str, Any]]
"""N of them."""
FINAL, TRUNCATED, EPISODE, SUCCESS = "terminal_observation", "TimeLimit.truncated", "episode", "is_success"
_MONITORED = {"r": "returns", "l": "lengths", "t": "seconds"}
"""Name in a Monitor's statistics -> column."""
_SHORT = {name: key for key, name in _MONITORED.items()}
SUCCEEDED = "success"
"""Column of whether episodes were successful."""
_KEPT = "monitor/"
"""Begins the columns of what else a Monitor keeps."""


class InfoRows(Sequence[dict[str, Any]]):
    """Infos of which most are made when they are asked for.

    Args:
        n: N.
        made: those that say more than others do, such as of the episodes that ended, by place.
        make: makes all N, of which those at the places of ``made`` are not used.
    """

    def __init__(self, n: int, made: dict[int, dict[str, Any]], make: Callable[[], list[dict[str, Any]]]) -> None:
        self.n, self.made, self._make = n, made, make
        self._all: list[dict[str, Any]] | None = None

    def all(self) -> list[dict[str, Any]]:
        """All N of them."""
        if self._all is None:
            self._all = self._make()
            for place, info in self.made.items():
                self._all[place] = info
        return self._all

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.all())

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: Any) -> Any:
        return self.all()[place]


def episode_columns(infos: Infos, dones: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Statistics of the episodes that ended in a step.

    Args:
        infos: where a Monitor or a vectorised environment has put them.
        dones: [N] which episodes ended, of which infos may say whether they were successful; ``None``: that is not
            asked.

    Returns:
        ``returns``, ``lengths`` (0 where no episode ended), ``seconds`` since the environments were made, ``success``
        from 0 to 1, and ``monitor/NAME`` of what else a Monitor keeps of the last info, [N] each. NaN, or ``None``
        among other objects, where nothing is known. Empty if that is so everywhere.
    """
    columns: dict[str, np.ndarray] = {}
    said = infos.made if type(infos) is InfoRows else infos
    for i, info in said.items() if isinstance(said, dict) else enumerate(said):
        if EPISODE in info and isinstance(episode := info[EPISODE], dict) and "r" in episode and "l" in episode:
            for key, value in episode.items():
                name = _MONITORED.get(key) or f"{_KEPT}{key}"
                if name not in columns:
                    columns[name] = _blank(name, len(infos))
                columns[name][i] = value.item() if key in _MONITORED and isinstance(value, np.ndarray) else value
    for i in () if dones is None else dones.nonzero()[0].tolist():
        if (success := said[i].get(SUCCESS)) is not None:
            if SUCCEEDED not in columns:
                columns[SUCCEEDED] = _blank(SUCCEEDED, len(infos))
            columns[SUCCEEDED][i] = success.item() if isinstance(success, np.ndarray) else success
    return columns


def as_monitored(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The inverse of :func:`episode_columns`: what a Monitor says of each ended episode, ``r``, ``l``, ``t`` and the
    rest, in the order of the environments."""
    if "lengths" not in columns:
        return []
    rows, parts = columns["lengths"].nonzero()[0], {}
    for name, column in columns.items():
        if name != SUCCEEDED:
            parts[_SHORT.get(name) or name.removeprefix(_KEPT)] = column[rows].tolist()
    return [dict(zip(parts, episode, strict=True)) for episode in zip(*parts.values(), strict=True)]


def cut_short(infos: Infos, dones: np.ndarray, successors: Any) -> list[dict[str, Any]]:
    """Infos which say that all episodes ended: those that had not were cut short at ``successors`` [N, ...]."""
    return [
        info if done else {**info, TRUNCATED: True, FINAL: _row(successors, i)}
        for i, (info, done) in enumerate(zip(infos, dones, strict=True))
    ]


def _row(observations: Any, i: int) -> Any:
    """A copy of one environment's."""
    if isinstance(observations, dict):
        return {key: np.array(part[i]) for key, part in observations.items()}
    return np.array(observations[i])


def _blank(name: str, n: int) -> np.ndarray:
    """A column [n] of which nothing is known yet."""
    if name == "lengths":
        return np.zeros(n, np.int64)
    column = np.empty(n, object if name.startswith(_KEPT) else np.float64)
    if column.dtype != object:  # whose entries are None
        column.fill(np.nan)
    return column
