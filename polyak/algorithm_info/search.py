"""Composable ranges of hyper-parameters: the search spaces of `polyak tune`.

A part draws numbers from an Optuna trial and returns settings as in YAML files: plain numbers, strings, lists and
dicts, keyed by the constructor's parameters and the run keys of `polyak.zoo.settings`. They replace those of the tuned
file; other settings are kept.

Ranges cover values from too small to too large for most tasks, on a logarithmic scale if ratios matter more than
differences. If a setting costs experience (a rollout, a warm-up), the task's budget bounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

Values = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The facts that a range may depend on: the budget of one training in environment steps, and fixed settings.

    ``continuous``: whether actions are a Box; ``images``: whether the policy takes images; ``goals``: whether
    experience is relabelled with other goals (HER).
    """

    n_timesteps: int
    n_envs: int = 1
    continuous: bool = False
    images: bool = False
    goals: bool = False


@dataclass(frozen=True)
class SearchPart:
    """One draw, or a few that belong together."""

    name: str
    """Of parts with the same name in a :class:`Search`, the last is drawn, at the position of the first."""
    draw: Callable[[BaseTrial, Task, Mapping[str, Any]], Values]
    """``(trial, task, settings drawn before) -> settings``"""


class Search:
    """Parts that are drawn one after the other: ``search(trial, task)`` returns the settings of all.

    Args:
        parts: :class:`SearchPart` objects, or searches, whose parts are included.
    """

    def __init__(self, *parts: SearchPart | Search) -> None:
        flat = [part for given in parts for part in ([given] if isinstance(given, SearchPart) else given)]
        self.parts = {part.name: part for part in flat}

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[SearchPart]:
        return iter(self.parts.values())

    def __call__(self, trial: BaseTrial, task: Task) -> Values:
        """Draw from ``trial`` for ``task``."""
        drawn: Values = {}
        for part in self:
            drawn |= part.draw(trial, task, drawn)
        return drawn
