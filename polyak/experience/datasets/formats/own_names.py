"""Tables with column names of the user's choice: their mapping to observations, actions ..."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from polyak.experience.datasets.episodes import DatasetError
from polyak.suggestions import did_you_mean

Columns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""One column, a number for each step; several columns, an array; or, for Dict observations, a dict of these."""

USUAL = {
    "observations": "obs",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_obs",
    "terminations": "terminated",
    "truncations": "truncated",
    "dones": "done",
    "episodes": "episode",
    "steps": "step",
}
"""The arguments that map columns -> the usual name of such columns."""


def check(columns: Mapping[str, Any]) -> None:
    """Refuse arguments that are not in :data:`USUAL`, or do not name columns.

    Raises:
        TypeError: an unknown argument.
        DatasetError: its value is neither a name nor a list of names.
    """
    for name, given in columns.items():
        if name not in USUAL:
            raise TypeError(
                f"Dataset.load() got an unexpected keyword argument {name!r}.{did_you_mean(name, USUAL)} Columns of a "
                f"table are named by {', '.join(USUAL)}."
            )
        parts = given.values() if isinstance(given, Mapping) else [given]
        for part in parts:
            names = [part] if isinstance(part, str) else part
            if not isinstance(names, Sequence) or not names or not all(isinstance(item, str) for item in names):
                raise DatasetError(f"{name}={given!r} cannot be used: give the name of a column, or a list of names.")


def renamed(table: Iterable[Any], columns: Mapping[str, Columns], source: str) -> dict[Any, str]:
    """Returns the usual name of each column of a table, as ``columns`` map them.

    Raises:
        DatasetError: there is no such column, one is named twice, or another one has its usual name already.
    """
    names = {str(name): name for name in table}
    usual: dict[str, str] = {}
    for column, name in _usual(columns):
        if column not in names:
            raise DatasetError(f"{source} has no column {column!r}.{did_you_mean(column, names)} It has {list(names)}.")
        if column in usual:
            raise DatasetError(f"{source}: the column {column!r} is named twice, for {usual[column]} and for {name}.")
        usual[column] = name
    if taken := sorted(set(usual.values()) & (names.keys() - usual.keys())):
        raise DatasetError(
            f"{source} has a column {taken[0]!r} besides those that are named, which would be called so. Name it, too, "
            "or rename it in the file."
        )
    return {original: usual.get(name, name) for name, original in names.items()}


def _usual(columns: Mapping[str, Columns]) -> Iterator[tuple[str, str]]:
    """``(column, its usual name)``."""
    for meaning, given in columns.items():
        for key, part in given.items() if isinstance(given, Mapping) else [(None, given)]:
            base, mark = (USUAL[meaning], "_") if key is None else (f"{USUAL[meaning]}:{key}", ":")
            if isinstance(part, str):
                yield part, base
            else:
                yield from ((column, f"{base}{mark}{index}") for index, column in enumerate(part))
