"""Estimates with bootstrap intervals over episodes (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CELLS = 1 << 22
"""Numbers held in memory at once while resampling."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of a policy's return.

    Args:
        value: the estimate.
        low, high: ends of the interval; not numbers, where there is a single episode.
        confidence: level of the interval.
        n_episodes: number of episodes behind it.
        effective_size: number of equally weighted episodes with the same variance. If it is small, a few episodes
            dominate, and the interval is too narrow.
        by_critic: for an ensemble, the estimate of each member; their spread shows what the data do not determine.
    """

    value: float
    low: float
    high: float
    confidence: float
    n_episodes: int
    effective_size: float
    by_critic: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap(
    statistic: Callable[[np.ndarray], np.ndarray], n: int, confidence: float, n_resamples: int, seed: int
) -> tuple[float, float]:
    """Percentile interval of a statistic of n episodes.

    Args:
        statistic: a function of the counts of each episode, [R, n] -> [R].
        n: episodes.
        confidence: level of the interval, in (0, 1).
        n_resamples: number of resamples, with replacement.
        seed: of the draws.

    Raises:
        ImportError: scipy is missing.
        ValueError: a number out of range.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}. Use 0.95 for a 95 % interval.")
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples!r}.")
    if n < 2:
        return float("nan"), float("nan")

    def of_rows(rows: np.ndarray, axis: int = -1) -> np.ndarray:
        return statistic(_counts(rows.reshape(-1, rows.shape[-1]), n)).reshape(rows.shape[:-1])

    result = scipy_stats().bootstrap(
        (np.arange(n),),
        of_rows,
        n_resamples=n_resamples,
        batch=max(CELLS // n, 1),
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _counts(rows: np.ndarray, n: int) -> np.ndarray:
    """How often each number below n occurs in each row: [R, M] -> [R, n] float64"""
    offsets = np.arange(len(rows))[:, None] * n
    return np.bincount((rows + offsets).reshape(-1), minlength=len(rows) * n).reshape(len(rows), n).astype(np.float64)


def of_means(
    values: np.ndarray, confidence: float = 0.95, n_resamples: int = 2000, seed: int = 0, **more: Any
) -> Estimate:
    """The estimate whose value is the mean of one number for each episode [E]."""
    n = len(values)
    low, high = bootstrap(lambda counts: counts @ values / n, n, confidence, n_resamples, seed)
    return Estimate(float(values.mean()), low, high, confidence, n, **{"effective_size": float(n), **more})


def scipy_stats() -> Any:
    """``scipy.stats``.

    Raises:
        ImportError: it is not installed.
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError("intervals and rank correlations need scipy: pip install 'polyak[offline]'") from error
    return stats


def rank_correlation(estimates: Any, returns: Any) -> float:
    """Spearman's correlation of the ranks of estimates [P] and true returns [P] of P policies, in [-1, 1].

    Raises:
        ImportError: scipy is missing.
        ValueError: they are of unequal lengths, or fewer than two.
    """
    values = np.array([getattr(estimate, "value", estimate) for estimate in estimates], np.float64)
    truth = np.asarray(returns, np.float64)
    if values.shape != truth.shape or len(values) < 2:
        raise ValueError(
            f"got {len(values)} estimates and {len(truth)} returns: pass one of each for every policy, two or more."
        )
    return float(scipy_stats().spearmanr(values, truth).statistic)
