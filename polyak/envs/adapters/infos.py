"""Infos as columns: what Stable-Baselines3's vectorised environments say in one dict for each environment.

Shape letters: N environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Infos = list[dict[str, Any]]
"""N of them."""
FINAL, TRUNCATED, EPISODE, SUCCESS = "terminal_observation", "TimeLimit.truncated", "episode", "is_success"
_MONITORED = {"r": "returns", "l": "lengths", "t": "seconds"}
"""Name in a Monitor's statistics -> column."""
_SHORT = {name: key for key, name in _MONITORED.items()}
SUCCEEDED = "success"
"""Column of whether episodes were successful."""
_KEPT = "monitor/"
"""Begins the columns of what else a Monitor keeps."""


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
    over = [False] * len(infos) if dones is None else dones.tolist()
    for i, info in enumerate(infos):
        if EPISODE in info and isinstance(info[EPISODE], Mapping) and "r" in info[EPISODE] and "l" in info[EPISODE]:
            for key, value in info[EPISODE].items():
                name = _MONITORED.get(key, f"{_KEPT}{key}")
                if name not in columns:
                    columns[name] = _blank(name, len(infos))
                columns[name][i] = np.asarray(value).item() if key in _MONITORED else value
        if over[i] and (success := info.get(SUCCESS)) is not None:
            columns.setdefault(SUCCEEDED, _blank(SUCCEEDED, len(infos)))[i] = np.asarray(success).item()
    return columns


def as_monitored(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The inverse of :func:`episode_columns`: what a Monitor says of each ended episode, ``r``, ``l``, ``t`` and the
    rest, in the order of the environments."""
    found = []
    for i in columns["lengths"].nonzero()[0].tolist() if "lengths" in columns else ():
        episode = {}
        for name, column in columns.items():
            if name != SUCCEEDED:
                episode[_SHORT.get(name) or name.removeprefix(_KEPT)] = column.item(i)
        found.append(episode)
    return found


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
    """A column [n] where nothing is known yet."""
    if name == "lengths":
        return np.zeros(n, np.int64)
    return np.full(n, None, object) if name.startswith(_KEPT) else np.full(n, np.nan)
