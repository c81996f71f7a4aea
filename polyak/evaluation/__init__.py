"""Evaluation of policies: in environments, or off-policy from recorded episodes."""

from polyak.evaluation.in_environments import (
    EvaluationResult,
    Predictor,
    bootstrap_interval,
    evaluate,
    evaluate_policy,
    interquartile_mean,
)
from polyak.evaluation.off_policy.bootstrap import Estimate
from polyak.evaluation.off_policy.importance_sampling import estimate_from_ratios
from polyak.evaluation.off_policy.log_probs import log_prob_of
from polyak.evaluation.undisturbed import undisturbed

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
