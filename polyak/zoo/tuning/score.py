"""The score of several agents' returns, and an upper confidence bound of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyak.evaluation.intervals import interquartile_mean, student_quantile

_COMES_TO: Mapping[str, Callable[[np.ndarray], Any]] = {
    "median": np.median,
    "mean": np.mean,
    "iqm": interquartile_mean,
}


def score(returns: Sequence[np.ndarray], objective: str) -> float:
    """The number that a study maximises.

    Args:
        returns: for each seed, [n] returns of the episodes of one evaluation.
        objective: ``"median"``, ``"mean"`` or ``"iqm"`` of the seeds' mean returns. Of one seed all are its mean, and
            the interquartile mean leaves nothing out before there are four.
    """
    means = np.array([np.mean(episodes) for episodes in returns])
    return float(_COMES_TO[objective](means))


def hopeful_score(returns: Sequence[np.ndarray], objective: str, confidence: float) -> float:
    """Return the upper end of a one-sided interval of :func:`score`.

    With several seeds it bounds the score of S others: score + t s / sqrt(S), with the standard deviation s of the
    seeds' means and the quantile t of Student's distribution with S - 1 degrees of freedom. The error of a median is
    sqrt(pi / 2) times that of a mean (of normal values, and of more than two). With one seed its episodes are used,
    which measures the precision for this agent, but not how well others would do. One episode of one seed has no
    interval.

    Args:
        returns: see :func:`score`.
        objective: see :func:`score`.
        confidence: probability that the true score is below the bound; 0.5 gives the score itself.
    """
    values = np.array([np.mean(episodes) for episodes in returns]) if len(returns) > 1 else np.asarray(returns[0])
    n = len(values)
    if n < 2:
        return score(returns, objective)
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    if objective == "median" and len(returns) > 2:
        error *= math.sqrt(math.pi / 2)
    return score(returns, objective) + float(student_quantile(confidence, n - 1)) * error
