"""Comparisons of methods over several environments, with intervals (Agarwal et al., 2021, arXiv:2108.13264).

The statistics are rliable's. Its intervals, percentiles of a bootstrap, are too narrow for few runs: these are of
`polyak.evaluation.intervals`. Runs are resampled within each environment, with a seed: equal results, equal intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.output import note
from polyak.zoo.plots.results import Results, methods_of

N_RESAMPLES = 2000
_GRID = 40
"""Points of a sample-efficiency curve."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """A statistic and its interval, NaN where it is unknown; numbers, or arrays of one shape when there are several."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


Scores = dict[str, np.ndarray]
"""Method -> [runs, environments], the layout of rliable."""


def comparable(results: Results) -> Results:
    """Return the environments on which every method was evaluated and final scores differ; the others are named on
    stderr.

    Raises ZooError when there are none.
    """
    methods = methods_of(results)
    common = {
        env: {name: known[name] for name in methods} for env, known in results.items() if len(known) == len(methods)
    }
    distinct = {env: known for env, known in common.items() if np.ptp(_all_last(known)) > 0}
    if not distinct:
        raise ZooError(
            f"There is no environment on which all of {', '.join(methods)} were evaluated with different scores. "
            "Choose methods with --keep-keys or --skip-keys."
        )
    for env in results:
        if env not in distinct:
            absent = [name for name in methods if name not in results[env]]
            why = f"has no runs of {', '.join(absent)}" if absent else "has the same score in all runs"
            note(f"comparisons leave {env} out: it {why}.")
    return distinct


def _all_last(known: Mapping[str, Any]) -> np.ndarray:
    return np.concatenate([found.last for found in known.values()])


def ranges(results: Results) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest last evaluation of any run in each environment; they become 0 and 1."""
    last = {env: _all_last(known) for env, known in results.items()}
    return {env: (float(values.min()), float(values.max())) for env, values in last.items()}


def last_scores(results: Results) -> Scores:
    """Return the last evaluations, scaled by `ranges`. Runs beyond the number that all environments have are named."""
    scales = ranges(results)
    scores = {}
    for method in methods_of(results):
        counts = {env: known[method].n_runs for env, known in results.items()}
        fewest = min(counts.values())
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{env} {count}" for env, count in counts.items())
            note(f"{method}: the first {fewest} runs of each environment are compared (there are: {said}).")
        columns = [
            (known[method].last[:fewest] - scales[env][0]) / (scales[env][1] - scales[env][0])
            for env, known in results.items()
        ]
        scores[method] = np.stack(columns, axis=1)
    single = [method for method, values in scores.items() if len(values) == 1]
    if single:
        note(f"only one run of {', '.join(single)}: its intervals are unknown. Train more seeds.")
    return scores


def aggregates(scores: Scores, confidence: float = 0.95) -> dict[str, dict[str, Estimates]]:
    """Return median, interquartile mean, mean and optimality gap of scaled scores: statistic -> method -> estimates."""
    from polyak.evaluation.intervals import interquartile_mean

    statistics: dict[str, Callable[[np.ndarray], Any]] = {
        "Median": lambda values: np.median(values.mean(axis=0)),
        "IQM": lambda values: interquartile_mean(values.reshape(-1)),
        "Mean": np.mean,
        "Optimality gap": lambda values: 1 - np.minimum(values, 1).mean(),
    }
    found = _estimate(scores, lambda values: np.array([f(values) for f in statistics.values()]), confidence)
    return {
        name: {
            method: Estimates(each.value[number], each.low[number], each.high[number]) for method, each in found.items()
        }
        for number, name in enumerate(statistics)
    }


def performance_profiles(scores: Scores, thresholds: np.ndarray, confidence: float = 0.95) -> dict[str, Estimates]:
    """Return the share of runs, over all environments, that score above each of `thresholds` [t]."""
    above = {method: (values[..., None] > thresholds).mean(axis=(0, 1)) for method, values in scores.items()}
    return {method: _rate(share, confidence, scores[method]) for method, share in above.items()}


def improvement(scores: Scores, confidence: float = 0.95) -> dict[tuple[str, str], Estimates]:
    """Return for each pair (x, y) the probability that a run of x scores higher than one of y, ties counted half.

    The mean over all pairs of runs varies no more than that over pairs that share no run (Hoeffding 1948), whose number
    is that of the method with fewer runs: its interval is that of as many trials.
    """
    pairs = {(x, y): (scores[x], scores[y]) for x, y in combinations(scores, 2)}
    return {pair: _rate(probability_of_improvement(*both), confidence, *both) for pair, both in pairs.items()}


def probability_of_improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the mean over environments of P(x > y) + P(x = y) / 2, for scores [runs of x or y, environments].

    rliable's function of that name, without its p-values.
    """
    return np.mean((np.sign(x[:, None] - y[None]) + 1) / 2)


def sample_efficiency(results: Results, confidence: float = 0.95) -> tuple[np.ndarray, dict[str, Estimates]] | None:
    """Return steps [t] and, for each method, the interquartile mean of scaled scores at each of them.

    Evaluations are interpolated between their steps, and the curve covers those that all methods reached everywhere;
    None, and a note on stderr, if there are none.
    """
    everything = [found for known in results.values() for found in known.values()]
    first = max(int(found.x[0]) for found in everything)
    last = min(int(found.x[-1]) for found in everything)
    if first > last:
        note("no curves of sample efficiency: there are no steps at which all methods were evaluated everywhere.")
        return None
    if last < max(int(found.x[-1]) for found in everything):
        note(f"the curves of sample efficiency end at {last:,} steps, the most that all methods reached.")
    grid = np.linspace(first, last, _GRID) if first < last else np.array([float(first)])
    scales = ranges(results)
    scores: Scores = {}
    for method in methods_of(results):
        fewest = min(known[method].n_runs for known in results.values())
        columns = []
        for env, known in results.items():
            low, high = scales[env]
            runs = known[method].values.T[:fewest]
            values = np.stack([np.interp(grid, known[method].x, run) for run in runs])
            columns.append((values - low) / (high - low))
        scores[method] = np.stack(columns, axis=1)  # [runs, environments, steps]

    from polyak.evaluation.intervals import interquartile_mean

    def at_each_step(values: np.ndarray) -> np.ndarray:
        return interquartile_mean(values.reshape(-1, len(grid)), axis=0)

    return grid, _estimate(scores, at_each_step, confidence)


def _rate(share: np.ndarray, confidence: float, *scores: np.ndarray) -> Estimates:
    """Return a share of runs, or of pairs of them, with its interval; a single run has none."""
    from polyak.evaluation.intervals import success_ends

    trials = min(values.size if len(values) > 1 else 1 for values in scores)
    return Estimates(share, *success_ends(share * trials, trials, confidence))


def _estimate(scores: Scores, function: Callable[[np.ndarray], np.ndarray], confidence: float) -> dict[str, Estimates]:
    from polyak.evaluation.intervals import bootstrap_ends

    return {
        method: Estimates(function(values), *bootstrap_ends(values, function, confidence, N_RESAMPLES))
        for method, values in scores.items()
    }
