"""Comparisons of methods over several environments, with bootstrap intervals (Agarwal et al., 2021, arXiv:2108.13264).

The statistics are rliable's; here its inputs are made from `Results` and its outputs named. Runs are resampled within
each environment. Everything is seeded: equal results give equal intervals.
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
_SEED = 0
_GRID = 40
"""Points of a sample-efficiency curve."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """A statistic and its interval; numbers, or arrays of one shape when there are several of them."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


Scores = dict[str, np.ndarray]
"""Method -> [runs, environments], the layout of rliable."""


def comparable(results: Results) -> Results:
    """Return the environments on which every method was evaluated and not all runs ended alike; the others are named.

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
    return np.concatenate([found.last_evals for found in known.values()])


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
            (known[method].last_evals[:fewest] - scales[env][0]) / (scales[env][1] - scales[env][0])
            for env, known in results.items()
        ]
        scores[method] = np.stack(columns, axis=1)
    single = [method for method, values in scores.items() if len(values) == 1]
    if single:
        note(f"only one run of {', '.join(single)}: its intervals have no width. Train more seeds.")
    return scores


def aggregates(scores: Scores, confidence: float = 0.95) -> dict[str, dict[str, Estimates]]:
    """Return median, interquartile mean, mean and optimality gap of scaled scores: statistic -> method -> estimates."""
    metrics = _rliable()[1]
    statistics = {
        "Median": metrics.aggregate_median,
        "IQM": metrics.aggregate_iqm,
        "Mean": metrics.aggregate_mean,
        "Optimality gap": metrics.aggregate_optimality_gap,
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

    def shares(values: np.ndarray) -> np.ndarray:
        return (values[..., None] > thresholds).mean(axis=(0, 1))

    return _estimate(scores, shares, confidence)


def improvement(scores: Scores, confidence: float = 0.95) -> dict[tuple[str, str], Estimates]:
    """Return for each pair (x, y) the probability that a run of x scores higher than one of y, ties counted half."""
    pairs = {(x, y): (scores[x], scores[y]) for x, y in combinations(scores, 2)}
    return _estimate(pairs, probability_of_improvement, confidence)


def probability_of_improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the mean over environments of P(x > y) + P(x = y) / 2, for scores [runs of x or y, environments].

    rliable's function of that name, which takes seconds for the resamples of a pair, without its p-values.
    """
    return np.mean((np.sign(x[:, None] - y[None]) + 1) / 2)


def sample_efficiency(results: Results, confidence: float = 0.95) -> tuple[np.ndarray, dict[str, Estimates]] | None:
    """Return steps [t] and, for each method, the interquartile mean of scaled scores at each of them.

    Evaluations are interpolated between their steps, and the curve covers those that all methods reached everywhere;
    None, and a note on stderr, if there are none.
    """
    everything = [found for known in results.values() for found in known.values()]
    first = max(int(found.timesteps[0]) for found in everything)
    last = min(int(found.timesteps[-1]) for found in everything)
    if first > last:
        note("no curves of sample efficiency: there are no steps at which all methods were evaluated everywhere.")
        return None
    if last < max(int(found.timesteps[-1]) for found in everything):
        note(f"the curves of sample efficiency end at {last:,} steps, the most that all methods reached.")
    grid = np.linspace(first, last, _GRID) if first < last else np.array([float(first)])
    scales = ranges(results)
    scores: Scores = {}
    for method in methods_of(results):
        fewest = min(known[method].n_runs for known in results.values())
        columns = []
        for env, known in results.items():
            low, high = scales[env]
            runs = known[method].mean_per_eval.T[:fewest]
            values = np.stack([np.interp(grid, known[method].timesteps, run) for run in runs])
            columns.append((values - low) / (high - low))
        scores[method] = np.stack(columns, axis=1)  # [runs, environments, steps]

    from polyak.evaluation.in_environments import interquartile_mean

    def at_each_step(values: np.ndarray) -> np.ndarray:
        return interquartile_mean(values.reshape(-1, len(grid)), axis=0)

    return grid, _estimate(scores, at_each_step, confidence)


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> Estimates:
    """Return mean and percentile-bootstrap interval of a few runs [n]."""
    from polyak.evaluation.in_environments import bootstrap_interval

    low, high = bootstrap_interval(values, np.mean, confidence, N_RESAMPLES, _SEED)
    return Estimates(np.mean(values), np.array(low), np.array(high))


def _estimate(scores: Mapping[Any, Any], function: Callable[..., Any], confidence: float) -> dict[Any, Estimates]:
    from polyak.seeding import random_states_kept

    library = _rliable()[0]
    with random_states_kept():  # rliable has an argument for a generator, but draws from numpy's global one
        np.random.seed(_SEED)
        values, intervals = library.get_interval_estimates(
            scores, function, reps=N_RESAMPLES, confidence_interval_size=confidence
        )
    return {
        name: Estimates(np.asarray(value), *np.reshape(intervals[name], (2, *np.shape(value))))
        for name, value in values.items()
    }


def _rliable() -> tuple[Any, Any]:
    try:
        from rliable import library, metrics
    except (ImportError, TypeError) as error:  # arch, which rliable needs, fails so under pandas 3
        raise ImportError(f"rliable cannot be imported ({error}): pip install 'polyak[zoo]' 'pandas<3'.") from error
    return library, metrics
