"""Evaluation of policies: in environments, or off-policy from recorded episodes."""

from polyak.evaluation.in_environments import EvaluationResult, Predictor, evaluate, evaluate_policy
from polyak.evaluation.intervals import (
    Interval,
    bootstrap_interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
    success_interval,
)
from polyak.evaluation.off_policy.estimate import Estimate
from polyak.evaluation.off_policy.importance_sampling import estimate_from_ratios
from polyak.evaluation.off_policy.log_probs import log_prob_of
from polyak.evaluation.undisturbed import undisturbed

__all__ = [
    "Estimate",
    "EvaluationResult",
    "Interval",
    "Predictor",
    "bootstrap_interval",
    "estimate_from_ratios",
    "evaluate",
    "evaluate_policy",
    "interquartile_interval",
    "interquartile_mean",
    "log_prob_of",
    "mean_interval",
    "success_interval",
    "undisturbed",
]
