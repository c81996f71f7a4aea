"""Estimates of policies' returns, and how well they rank policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyak.evaluation.intervals import Interval, mean_ends


@dataclass(frozen=True)
class Estimate:
    """An estimate of a policy's return.

    Args:
        value: the estimate.
        low, high: ends of the interval; NaN if it is unknown, as for a single episode.
        confidence: level of the interval.
        n_episodes: number of episodes behind it.
        effective_size: number of equally weighted episodes with the same variance. If it is small, a few episodes
            dominate, and the interval is unreliable.
        by_critic: for an ensemble, the estimate of each member; their spread shows what the data leave uncertain.
    """

    value: float
    low: float
    high: float
    confidence: float
    n_episodes: int
    effective_size: float
    by_critic: tuple[float, ...] = ()

    @property
    def interval(self) -> Interval:
        """The interval with both ends."""
        return Interval(self.low, self.high)

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.interval:.4g}]"


def of_episodes(
    values: np.ndarray, confidence: float, value: float | None = None, size: float | None = None, **more: Any
) -> Estimate:
    """Returns the estimate that is the mean of one number per episode.

    Args:
        values: [E] the numbers; or pseudo-values of a jackknife, whose mean differs slightly from the estimate.
        confidence: level of the interval.
        value: the estimate; ``None``: the mean.
        size: the effective size; ``None``: E.
        more: other fields of the estimate.
    """
    n = len(values)
    value, size = float(values.mean()) if value is None else value, float(n) if size is None else size
    low, high = mean_ends(values, confidence, value, size)
    return Estimate(value, float(low), float(high), confidence, n, size, **more)


def rank_correlation(estimates: Any, returns: Any) -> float:
    """Returns Spearman's rank correlation of estimates [P] and true returns [P] of P policies, in [-1, 1].

    Raises:
        ImportError: scipy is missing.
        ValueError: the lengths differ, or are less than two.
    """
    try:
        from scipy.stats import spearmanr
    except ImportError as error:
        raise ImportError("rank correlations need scipy: pip install 'polyak[extra]'") from error
    values = np.array([getattr(estimate, "value", estimate) for estimate in estimates], np.float64)
    truth = np.asarray(returns, np.float64)
    if values.shape != truth.shape or len(values) < 2:
        raise ValueError(
            f"got {len(values)} estimates and {len(truth)} returns: pass one of each for every policy, two or more."
        )
    return float(spearmanr(values, truth).statistic)
