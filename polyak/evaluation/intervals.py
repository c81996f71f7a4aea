"""Confidence intervals of means, interquartile means, success rates and other statistics, for the whole package.

An interval is unknown, NaN at both ends, if the data do not determine it: for a single value, for equal values (which
do not show their spread), and, except for rates, without scipy.

Student 1908, "The Probable Error of a Mean"; Hall 1992, "On the Removal of Skewness by Transformation"; Efron
1979, "Bootstrap Methods" (standard errors of other statistics); Newcombe 1998, "Two-Sided Confidence Intervals for the
Single Proportion", method 4 (Wilson's, with continuity correction).

Shapes: n independent values, ``...`` any number of statistics with an interval each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from polyak.warning import advise

ENOUGH_FOR_SKEWNESS = 10
"""Number of values from which intervals account for skewness; fewer values hardly show it."""
_ROUNDING = 1e-12
"""Standard errors below this share of the statistic are rounding errors of equal values."""

Ends = tuple[np.ndarray, np.ndarray]
"""Lower and upper ends of intervals, [...] each."""


class Interval(NamedTuple):
    """The ends of an interval, both NaN if it is unknown. ``f"{interval:.2f}"`` is ``"1.00 to 2.00"``, or
    ``"unknown"``."""

    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether the interval is known."""
        return not math.isnan(self.low)

    def __format__(self, spec: str) -> str:
        spec = spec or ".4g"
        return f"{self.low:{spec}} to {self.high:{spec}}" if self.is_known else "unknown"

    def __str__(self) -> str:
        return format(self)


# -- of n values ---------------------------------------------------------------------------------------------------


def mean_interval(values: Any, confidence: float = 0.95) -> Interval:
    """Returns the interval of the mean of values [n]: Student's t; from `ENOUGH_FOR_SKEWNESS` values on with Hall's
    correction for skewness.

    Raises:
        ValueError: ``confidence`` is not in (0, 1).
    """
    return _single(mean_ends(values, confidence))


def success_interval(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """Returns Wilson's interval, with continuity correction, of the probability of a success.

    Args:
        successes: number of successes.
        n: number of trials.
        confidence: level of the interval, in (0, 1).

    Raises:
        ValueError: ``confidence`` is not in (0, 1).
    """
    return _single(success_ends(np.asarray(successes, np.float64), n, confidence))


def interquartile_interval(values: Any, confidence: float = 0.95) -> Interval:
    """Returns the :func:`bootstrap_interval` of :func:`interquartile_mean` of values [n]."""
    return bootstrap_interval(values, interquartile_mean, confidence)


def bootstrap_interval(
    values: Any,
    statistic: Callable[..., Any] = np.mean,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Returns an interval of any statistic of values [n]: Student's t with the standard error of a bootstrap; that of
    ``np.mean``, which needs no bootstrap, is :func:`mean_interval`.

    Args:
        values: [n] independent observations.
        statistic: a function of ``(values, axis=...)``.
        confidence: level of the interval, in (0, 1).
        n_resamples: number of resamples with replacement.
        seed: of the resampling, so that equal values give equal intervals.

    Raises:
        ValueError: ``confidence`` or ``n_resamples`` is out of range.
    """
    if statistic is np.mean:
        return mean_interval(values, confidence)
    column = np.asarray(values, np.float64)[:, None]
    ends = bootstrap_ends(column, lambda drawn: statistic(drawn[:, 0], axis=-1), confidence, n_resamples, seed)
    return _single(ends)


# -- of arrays -----------------------------------------------------------------------------------------------------


def mean_ends(values: Any, confidence: float = 0.95, center: Any = None, size: Any = None) -> Ends:
    """Returns the ends of :func:`mean_interval` of values [..., n].

    Args:
        values: [..., n].
        confidence: level of the intervals, in (0, 1).
        center: [...] the estimate, if it differs from the mean of ``values`` (for a jackknife's pseudo-values).
        size: [...] equivalent number of equally weighted values; ``None``: n.
    """
    values = np.asarray(values, np.float64)
    n, mean = values.shape[-1], values.mean(-1)
    error = values.std(-1, ddof=1) / math.sqrt(n) if n > 1 else np.full_like(mean, np.nan)
    skewness = _skewness(values) / math.sqrt(n) if n >= ENOUGH_FOR_SKEWNESS else 0.0
    center = mean if center is None else center
    return _ends(center, error, skewness, np.subtract(n if size is None else size, 1), confidence)


def success_ends(successes: np.ndarray, n: int, confidence: float = 0.95) -> Ends:
    """Returns the ends of :func:`success_interval` for numbers of successes [...] among n trials."""
    check_confidence(confidence)
    if n < 2:
        return np.full_like(successes, np.nan), np.full_like(successes, np.nan)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    upper = _wilson_upper_end(successes / n, n, z)
    return 1 - _wilson_upper_end(1 - successes / n, n, z), upper


def bootstrap_ends(
    sample: np.ndarray,
    statistic: Callable[[np.ndarray], Any],
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Ends:
    """Returns the ends of intervals of statistics of values in several strata, such as runs in environments.

    Values are resampled within each stratum. The degrees of freedom are those of a sum over strata of different
    variances (Satterthwaite 1946).

    Args:
        sample: [n, strata, ...].
        statistic: a function of such an array -> [...].
        confidence: level of the intervals, in (0, 1).
        n_resamples: number of resamples.
        seed: of the draws.

    Raises:
        ValueError: ``confidence`` or ``n_resamples`` is out of range.
    """
    if n_resamples < 2:
        raise ValueError(f"n_resamples must be at least 2, got {n_resamples!r}. Use 2000 for ends of two digits.")
    n, strata = sample.shape[:2]
    value = np.asarray(statistic(sample), np.float64)
    if n < 2:
        return np.full_like(value, np.nan), np.full_like(value, np.nan)
    rng, columns = np.random.default_rng(seed), np.arange(strata)
    resampled = np.stack([statistic(sample[rng.integers(n, size=(n, strata)), columns]) for _ in range(n_resamples)])
    variances = sample.var(0)
    with np.errstate(invalid="ignore"):
        freedom = (n - 1) * variances.sum(0) ** 2 / (variances**2).sum(0)
    return _ends(value, resampled.std(0) * math.sqrt(n / (n - 1)), 0.0, freedom, confidence)


# -- shared functions ----------------------------------------------------------------------------------------------


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the mean without the lowest and highest quarter, rounded down (Agarwal et al., 2021, arXiv:2108.13264)."""
    ordered = np.sort(values, axis=axis)
    n = ordered.shape[axis]
    return np.mean(np.take(ordered, range(n // 4, n - n // 4), axis=axis), axis=axis)


def student_quantile(probability: float, freedom: Any) -> np.ndarray:
    """Returns the quantile of Student's distribution with degrees of freedom [...]; NaN and a warning without scipy."""
    try:
        from scipy.special import stdtrit
    except ImportError:
        advise("intervals without scipy", "intervals are unknown without scipy: pip install 'polyak[extra]'.")
        return np.full(np.shape(freedom), np.nan)
    return np.asarray(stdtrit(freedom, probability))


def _ends(center: Any, error: Any, skewness: Any, freedom: Any, confidence: float) -> Ends:
    """Returns the ends of intervals around estimates, from their standard errors, skewness and degrees of freedom,
    [...]."""
    check_confidence(confidence)
    quantile = student_quantile((1 + confidence) / 2, freedom)
    with np.errstate(invalid="ignore"):
        error = np.where(error > _ROUNDING * np.abs(center), error, np.nan)
        low, high = (center - error * _untransformed(q, skewness) for q in (quantile, -quantile))
    return np.minimum(low, center), np.maximum(high, center)


def _untransformed(y: np.ndarray, skewness: Any) -> np.ndarray:
    """Returns t with t + s t^2 / 3 + s^2 t^3 / 27 + s / 6 = y: Hall's transformation, inverted without a pole at s = 0."""
    y = y - skewness / 6
    root = np.cbrt(1 + skewness * y)
    return 3 * y / (1 + root + root**2)


def _skewness(values: np.ndarray) -> np.ndarray:
    deviations = values - values.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide((deviations**3).mean(-1), (deviations**2).mean(-1) ** 1.5)


def _wilson_upper_end(rate: np.ndarray, n: int, z: float) -> np.ndarray:
    inner = np.maximum(z**2 + 2 - 1 / n + 4 * rate * (n * (1 - rate) - 1), 0)
    end = (2 * n * rate + z**2 + 1 + z * np.sqrt(inner)) / (2 * (n + z**2))
    return np.where(rate == 1, 1.0, np.minimum(end, 1.0))


def check_confidence(confidence: float) -> None:
    """Raises ValueError unless the level is in (0, 1)."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}. Use 0.95 for a 95 % interval.")


def _single(ends: Ends) -> Interval:
    return Interval(float(ends[0]), float(ends[1]))
