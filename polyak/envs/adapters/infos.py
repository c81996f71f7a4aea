"""Infos as columns, in place of the one dict for each environment of Stable-Baselines3's vectorised environments.

Shape letters: N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from polyak.envs.nested_spaces import mapped_parts

Infos = Sequence[dict[str, Any]]
"""N infos."""
FINAL, TRUNCATED, EPISODE, SUCCESS = "terminal_observation", "TimeLimit.truncated", "episode", "is_success"
_MONITORED = {"r": "returns", "l": "lengths", "t": "seconds"}
"""Name in a Monitor's statistics -> column."""
SUCCEEDED = "success"
"""Column of whether episodes were successful."""
_KEPT = "monitor/"
"""Prefix of the columns of a Monitor's further entries."""


class InfoRows(Sequence[dict[str, Any]]):
    """A sequence of infos, most of which are made on request.

    Args:
        n: N.
        made: infos with more content, such as those of episodes that ended, by index.
        make: makes all N; those at the indices in ``made`` are not used.
    """

    def __init__(self, n: int, made: dict[int, dict[str, Any]], make: Callable[[], list[dict[str, Any]]]) -> None:
        self.n, self.made, self._make = n, made, make
        self._all: list[dict[str, Any]] | None = None

    def all(self) -> list[dict[str, Any]]:
        """Returns all N infos."""
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
    """Returns statistics of the episodes that ended in a step.

    Args:
        infos: the infos in which a Monitor or a vectorised environment has stored them.
        dones: [N] bool, which episodes ended: their infos may report success; ``None``: success is not read.

    Returns:
        ``returns``, ``lengths`` and ``seconds`` since the environments were made, [N] each, 0 where no episode ended;
        ``success`` [N] from 0 to 1, NaN where unknown; ``monitor/NAME`` [N] for other entries of the last info that a
        Monitor keeps, ``None`` where there are none. Columns without content are left out.
    """
    columns: dict[str, np.ndarray] = {}
    n, said = len(infos), infos.made if type(infos) is InfoRows else infos
    for i, info in said.items() if isinstance(said, dict) else enumerate(said):
        if EPISODE in info and isinstance(episode := info[EPISODE], dict) and "r" in episode and "l" in episode:
            if "returns" not in columns:
                columns |= {"returns": np.zeros(n), "lengths": np.zeros(n, np.int64), "seconds": np.zeros(n)}
            columns["returns"][i], columns["lengths"][i] = _number(episode["r"]), _number(episode["l"])
            columns["seconds"][i] = _number(episode.get("t", np.nan))
            for key in episode if len(episode) > len(_MONITORED) else ():
                if key not in _MONITORED:
                    columns.setdefault(f"{_KEPT}{key}", np.empty(n, object))[i] = episode[key]
    for i in () if dones is None else dones.nonzero()[0].tolist():
        if (success := said[i].get(SUCCESS)) is not None:
            columns.setdefault(SUCCEEDED, np.full(n, np.nan))[i] = _number(success)
    return columns


def as_monitored(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Returns a Monitor's record of each ended episode, ``r``, ``l``, ``t`` and the rest, in the order of the
    environments: the inverse of :func:`episode_columns`."""
    found: list[dict[str, Any]] = []
    for i in columns["lengths"].nonzero()[0].tolist() if "lengths" in columns else ():
        found.append({key: columns[name].item(i) for key, name in _MONITORED.items()})
        for name, column in columns.items() if len(columns) > len(_MONITORED) else ():
            if name.startswith(_KEPT):
                found[-1][name.removeprefix(_KEPT)] = column[i]
    return found


def cut_short(infos: Infos, dones: np.ndarray, successors: Any) -> list[dict[str, Any]]:
    """Infos in which all episodes have ended: the running ones are truncated at ``successors`` [N, ...]."""
    last = [mapped_parts(lambda part, i=i: np.array(part[i]), successors) for i in range(len(dones))]
    return [
        info if done else {**info, TRUNCATED: True, FINAL: final}
        for info, done, final in zip(infos, dones, last, strict=True)
    ]


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) else value
