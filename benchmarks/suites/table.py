"""The lines of the table from results: means over seeds, their intervals, and published scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.suites.published import PublishedAgent, published
from benchmarks.suites.results import Result
from benchmarks.suites.suites import SUITES, Row, as_stored, settings_of, suite_of

if TYPE_CHECKING:
    from polyak.evaluation.intervals import Interval


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Fields: ``means`` the mean return of each seed's episodes; ``seconds`` and ``cpu_seconds`` the mean times
    of a training run; ``published`` what RL Baselines3 Zoo has, if anything.
    """

    row: Row
    means: tuple[float, ...]
    n_episodes: int
    seconds: float
    cpu_seconds: float
    published: PublishedAgent | None

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.means))

    @property
    def interval(self) -> Interval:
        """Interval of the mean over seeds."""
        from polyak.evaluation.intervals import mean_interval

        return mean_interval(self.means)

    @property
    def share_of_steps(self) -> float:
        """Steps of training, as a share of the published agent's."""
        return self.row.n_timesteps / self.published.n_timesteps if self.published else 1.0

    @property
    def verdict(self) -> str:
        """``above`` the published mean, ``within`` one published standard deviation below it, ``below``; or empty."""
        if self.published is None:
            return ""
        if self.mean > self.published.mean:
            return "above"
        return "within" if self.mean >= self.published.mean - self.published.std else "below"


def current(results: Iterable[Result]) -> list[Result]:
    """Return the results of today's settings: the latest for each row and seed."""
    settings: dict[tuple[str, str], object] = {}
    latest: dict[tuple[Row, int], Result] = {}
    for result in results:
        key = (result.algo, result.env)
        if key not in settings:
            settings[key] = as_stored(settings_of(*key).raw)
        if result.settings == settings[key]:
            latest[result.row, result.seed] = result
    return list(latest.values())


def lines(results: Iterable[Result]) -> dict[str, list[Line]]:
    """Return the lines of each suite, in the order of `SUITES`, from `current` results."""
    by_row: dict[Row, list[Result]] = {}
    for result in results:
        by_row.setdefault(result.row, []).append(result)
    tables: dict[str, list[Line]] = {suite: [] for suite in (*SUITES, "other")}
    for row in sorted(by_row, key=_place):
        tables[suite_of(row.env)].append(_line(row, by_row[row]))
    return {suite: found for suite, found in tables.items() if found}


def _place(row: Row) -> tuple[int, str, str, int]:
    envs = list(SUITES.get(suite_of(row.env), {}))
    return envs.index(row.env) if row.env in envs else len(envs), row.env, row.algo, row.n_timesteps


def _line(row: Row, results: list[Result]) -> Line:
    results = sorted(results, key=lambda result: result.seed)
    return Line(
        row=row,
        means=tuple(float(np.mean(result.returns)) for result in results),
        n_episodes=sum(len(result.returns) for result in results),
        seconds=float(np.mean([result.train_seconds for result in results])),
        cpu_seconds=float(np.mean([result.cpu_seconds for result in results])),
        published=published(row.algo, row.env),
    )
