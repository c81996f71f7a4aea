"""Evaluation: what a policy earns, in an environment or, by recorded episodes alone, without one."""

from polyak.core.judging.densities import log_prob_of
from polyak.core.judging.estimate import Estimate
from polyak.core.judging.recorded import estimate_from_ratios
from polyak.core.watching.evaluation import (
    EvaluationResult,
    Predictor,
    bootstrap_interval,
    evaluate,
    evaluate_policy,
    interquartile_mean,
)
from polyak.core.watching.undisturbed import undisturbed

__all__ = [
    "Estimate",
    "EvaluationResult",
    "Predictor",
    "bootstrap_interval",
    "estimate_from_ratios",
    "evaluate",
    "evaluate_policy",
    "interquartile_mean",
    "log_prob_of",
    "undisturbed",
]
