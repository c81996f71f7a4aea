"""Intervals: each formula against scipy's or a closed form; unknown ones everywhere; how often they hold (slow)."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from polyak.evaluation import (
    EvaluationResult,
    Interval,
    bootstrap_interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
    success_interval,
)
from polyak.evaluation.intervals import bootstrap_ends, mean_ends
from polyak.evaluation.off_policy.importance_sampling import doubts, estimate

ROOT = Path(__file__).parents[2]


def drawn(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(size=n)


def result(*returns: float, **more: Any) -> EvaluationResult:
    return EvaluationResult(np.array(returns), np.ones(len(returns), int), **more)


# -- formulas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_values_have_students_interval(n: int) -> None:
    values = drawn(n)
    wanted = stats.t.interval(0.9, n - 1, values.mean(), stats.sem(values))
    assert mean_interval(values, 0.9) == pytest.approx(wanted)
    assert result(*values, confidence=0.9).ci == pytest.approx(wanted)


def test_many_values_have_halls_interval() -> None:
    """Its ends are where Hall's polynomial of the studentised mean is Student's quantile, found by bisection here."""
    from scipy.optimize import brentq

    n, values = 20, drawn(20)
    skewness, error, quantile = stats.skew(values), stats.sem(values), stats.t.ppf(0.975, n - 1)

    def transformed(t: float, wanted: float) -> float:
        a = skewness / math.sqrt(n)
        return float(t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6 - wanted)

    low, high = (values.mean() - error * brentq(transformed, -50, 50, args=(q,)) for q in (quantile, -quantile))
    assert mean_interval(values) == pytest.approx((low, high))
    assert values.mean() - low < high - values.mean()  # the long tail is above
    mirrored = mean_interval(-values)
    assert (-mirrored.high, -mirrored.low) == pytest.approx((low, high))
    together = mean_ends(np.stack([values, -values]))
    np.testing.assert_allclose(together, np.transpose([(low, high), mirrored]))


def test_symmetric_values_have_students_interval_however_many() -> None:
    values = np.concatenate([drawn(10), -drawn(10)])
    wanted = stats.t.interval(0.95, 19, values.mean(), stats.sem(values))
    assert mean_interval(values) == pytest.approx(wanted)


@pytest.mark.parametrize(("n", "confidence"), [(2, 0.95), (5, 0.95), (40, 0.8)])
def test_success_rates_have_wilsons_interval(n: int, confidence: float) -> None:
    for k in range(n + 1):
        wanted = stats.binomtest(k, n).proportion_ci(confidence, "wilsoncc")
        assert success_interval(k, n, confidence) == pytest.approx((wanted.low, wanted.high))
        successes = np.repeat([True, False], [k, n - k])
        found = result(*successes.astype(float), successes=successes, confidence=confidence)
        assert found.ci == found.success_ci == success_interval(k, n, confidence)


def test_other_statistics_have_students_interval_with_the_error_of_a_bootstrap() -> None:
    def mean(values: np.ndarray, axis: int) -> Any:
        return values.mean(axis)

    values = drawn(30)
    wanted = stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
    noise = 10 * (wanted[1] - wanted[0]) / 2 / math.sqrt(2 * 4000)  # ten standard errors of a deviation of 4000
    assert bootstrap_interval(values, mean, n_resamples=4000) == pytest.approx(wanted, abs=noise)
    assert bootstrap_interval(values) == mean_interval(values)
    first, second = (bootstrap_interval(values, interquartile_mean, seed=seed) for seed in (0, 1))
    assert first == interquartile_interval(values) == result(*values).iqm_ci
    assert first != second
    assert first.low < interquartile_mean(values) < first.high
    reference = stats.bootstrap((values,), interquartile_mean, n_resamples=4000, rng=np.random.default_rng(0))
    half = stats.t.ppf(0.975, 29) * math.sqrt(30 / 29) * reference.standard_error
    assert (first.high - first.low) / 2 == pytest.approx(half, rel=10 / math.sqrt(2 * 2000))


def test_a_bootstrap_over_strata_has_satterthwaites_degrees_of_freedom() -> None:
    scales = np.array([1.0, 1.0, 3.0])
    sample = scales * np.stack([drawn(3, seed) for seed in range(3)], axis=1)
    low, high = bootstrap_ends(sample, np.mean, n_resamples=4000)
    variances = sample.var(0, ddof=1)
    error = math.sqrt(variances.sum() / 3) / 3
    freedom = 2 * variances.sum() ** 2 / (variances**2).sum()
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, freedom) * error, rel=10 / math.sqrt(2 * 4000))
    several = bootstrap_ends(np.stack([sample, 2 * sample], axis=2), lambda values: values.mean((0, 1)))
    np.testing.assert_allclose(several[0][1], 2 * several[0][0])


@pytest.mark.parametrize("method", ["wis", "wpdis", "wdr"])
def test_weighted_estimates_have_pseudo_values_of_the_jackknife(method: Any) -> None:
    rng = torch.Generator().manual_seed(0)
    data = {name: torch.randn(30, 4, generator=rng, dtype=torch.float64) / 3 for name in ("log_ratios", "rewards", "q")}
    data["v"] = torch.randn(30, 5, generator=rng, dtype=torch.float64)
    used = data if method == "wdr" else {name: data[name] for name in ("log_ratios", "rewards")}
    found = estimate(method, {**used, "gamma": 0.9})
    rest = [[i for i in range(30) if i != left_out] for left_out in range(30)]
    without = [estimate(method, {**{k: v[rows] for k, v in used.items()}, "gamma": 0.9}).value for rows in rest]
    pseudo_values = 30 * found.value - 29 * np.array(without)
    low, high = mean_ends(pseudo_values, center=found.value, size=found.effective_size)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_levels_out_of_range_are_refused() -> None:
    for function in (mean_interval, interquartile_interval, bootstrap_interval):
        with pytest.raises(ValueError, match=r"confidence must lie in \(0, 1\), got 95. Use 0.95"):
            function([1.0, 2.0], confidence=95)
    with pytest.raises(ValueError, match=r"confidence must lie in \(0, 1\), got 0"):
        success_interval(1, 2, 0)
    with pytest.raises(ValueError, match="n_resamples must be at least 2, got 1"):
        bootstrap_interval([1.0, 2.0], np.median, n_resamples=1)


# -- unknown -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[3.0], [0.1] * 3, [500.0] * 20])
def test_one_value_and_equal_values_have_no_interval(values: list[float]) -> None:
    for found in (mean_interval(values), interquartile_interval(values), bootstrap_interval(values)):
        assert not found.is_known
        assert (f"{found}", f"{found:.1f}", str(found)) == ("unknown",) * 3
    why = "unknown, of a single episode" if len(values) == 1 else "unknown, as all returns are equal"
    assert f"(95% interval {why})" in str(result(*values))


def test_a_single_success_has_no_interval() -> None:
    assert not success_interval(1, 1).is_known
    alone = result(1.0, successes=np.array([True]))
    assert not alone.ci.is_known
    assert str(alone).endswith("success rate 100.0% (95% interval unknown)")


def test_known_intervals_are_pairs_and_are_written() -> None:
    low, high = interval = Interval(1.0, 2.5)
    assert (low, high) == interval == (1.0, 2.5)
    assert (f"{interval:.2f}", f"{interval}") == ("1.00 to 2.50", "1 to 2.5")


def test_without_scipy_intervals_are_unknown_and_evaluation_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.warns(UserWarning, match=r"intervals are unknown without scipy: pip install 'polyak\[extra\]'"):
        assert not result(1.0, 2.0, 4.0).ci.is_known
    assert str(result(1.0, 2.0, 4.0)).startswith("mean return 2.33 (95% interval unknown)")
    assert result(1.0, 0.0, 1.0).ci.is_known  # of rates it takes no scipy


# -- warnings of off-policy evaluation -----------------------------------------------------------------------------


def test_small_weights_and_missing_episodes_are_named() -> None:
    few = torch.zeros(30, 1, dtype=torch.float64)
    rewards = torch.arange(30.0, dtype=torch.float64)[:, None]

    def said(log_ratios: torch.Tensor) -> str:
        return doubts(estimate("is", {"log_ratios": log_ratios, "rewards": rewards, "gamma": 1.0}), log_ratios)

    assert said(few) == ""
    few[:, 0] = torch.tensor([2.5] + [-3.0] * 29)
    assert said(few).startswith("its 30 episodes are worth 1.3 equally weighted ones (effective sample size)")
    low = torch.tensor([-0.7, -0.6, -0.5] * 10, dtype=torch.float64)[:, None]
    assert said(low).startswith("the mean of their ratios is 0.551, and should be 1")


# -- coverage ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    """benchmarks/coverage.py, which writes the tables of docs/evaluation.md."""
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", ROOT / "benchmarks" / "coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_success_rates_hold(coverage: ModuleType) -> None:
    """Exactly: with a percentile bootstrap 5 episodes of which 80 % succeed held in 66 of 100 cases."""
    rows = list(coverage.rates())
    assert {(row.what, row.n) for row in rows} >= {("success rate 0.8", 5), ("success rate 0.95", 100)}
    assert all(row.promised == 0.93 and row.shortfall <= 0 for row in rows)


def test_means_hold(coverage: ModuleType) -> None:
    rows = {(row.what, row.n): row for row in coverage.means(trials=20_000)}
    assert rows["mean, normal", 3].promised == 0.93
    assert rows["mean, lognormal", 20].promised == 0.9
    assert max(row.shortfall for row in rows.values()) <= 0
    assert rows["mean, normal", 3].holds == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 20_000))


@pytest.mark.slow
def test_all_of_them_hold_as_the_page_says(coverage: ModuleType) -> None:
    rows = list(coverage.rows())
    assert [row for row in rows if row.shortfall > 0] == []
    assert sum(row.warned is not None for row in rows) == 2 * 4 * 6
    page = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
    cells = re.findall(r"^\| (.+?) \|(?: (\d+) \|)? (\d\.\d+) \|", page, re.MULTILINE)
    written = {(what, n): float(share) for what, n, share in cells}
    assert len(written) == len(rows)
    for row in rows:
        share = written[row.what, str(row.n) if row.warned is None else ""]
        error = math.sqrt(2 * row.holds * (1 - row.holds) / row.trials) if row.trials else 0.0  # of a difference
        assert share == pytest.approx(row.holds, abs=5 * error + 0.005), row
