"""Scores of agents on recorded episodes that they have not learned from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyak.experience import Dataset

FQE = "fqe"
"""The score of fitted Q evaluation: the agent's discounted return."""
SIGNS: Mapping[str, int] = {
    "negative_log_likelihood": -1,
    "action_distance": -1,
    "action_match": 1,
    "td_error": -1,
    "soft_opc": 1,
}
"""Metrics of recorded episodes, and whether more of one is better."""


def default_metric(algorithm: type[Any]) -> str:
    """Return the score for an algorithm: the objective of cloning, and for all others the estimated return."""
    from polyak.algorithms import registered_as

    return "negative_log_likelihood" if registered_as(algorithm) == "bc" else FQE


def score_of(model: Any, held_out: Dataset, metric: str, gamma: float, n_updates: int, policy: str) -> float:
    """Return the score of an agent on held-out episodes, which a study maximises.

    Args:
        model: the agent.
        held_out: the episodes.
        metric: `FQE`, or a key of `SIGNS`, whose value is negated if less is better.
        gamma: discount of one step, for `FQE`.
        n_updates: gradient steps of `FQE`, which learns from the held-out episodes alone; 0 builds its networks.
        policy: name of the policy of `FQE`.

    Raises:
        ValueError: the metric does not apply to the agent.
    """
    from polyak.algorithms import get
    from polyak.evaluation.off_policy.importance_sampling import initial_observations
    from polyak.evaluation.off_policy.metrics import METRICS

    if metric != FQE:
        return SIGNS[metric] * METRICS[metric](model, held_out)
    critics: Any = get(FQE)
    critics = critics(policy, held_out, target=model, gamma=gamma, deterministic=True, seed=0, device=model.device)
    if n_updates:
        critics.learn(n_updates, log_interval=None)
    return float(critics.values(initial_observations(held_out)).mean())
