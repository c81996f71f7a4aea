"""Metrics of a model on recorded episodes. Each metric is a function of (model, dataset) -> number.

They draw no random numbers, so that they do not affect training. Values are in units of the model's training rewards,
by the minimum of its critics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from polyak.arrays import mapped
from polyak.evaluation.off_policy.importance_sampling import acted_on, initial_observations
from polyak.evaluation.off_policy.log_probs import NotApplicableError, log_prob_of, networks_of, slices, tensors_for
from polyak.evaluation.off_policy.policy_actions import choices_of
from polyak.experience import Dataset
from polyak.experience.batch import ArrayObs

Metric = Callable[[Any, Dataset], float]


# -- critics -----------------------------------------------------------------------------------------------------------


def action_values(model: Any, observations: ArrayObs, actions: np.ndarray) -> np.ndarray:
    """Returns the Q-values of actions by a model's critics.

    Args:
        model: with critics, or action values.
        observations: [N, ...] as the environment returns them.
        actions: [N, ...] in the environment's units.

    Returns:
        [K, N] float64

    Raises:
        NotApplicableError: the model has no action values.
    """
    policy = networks_of(model)
    critic = next((getattr(policy, name) for name in ("critic", "pairs", "q_net") if hasattr(policy, name)), None)
    if critic is None:
        raise NotApplicableError(f"{type(model).__name__} has no critics of actions. Use other metrics.")
    codes, chooses = np.asarray(policy.codec.from_env(actions)), isinstance(policy.action_space, spaces.Discrete)
    parts = []
    for at in slices(len(codes)):
        seen = tensors_for(model, mapped(lambda array, at=at: array[at], observations))
        taken = torch.as_tensor(codes[at], device=policy.device)
        with torch.no_grad():
            parts.append(
                _of_choices(critic, seen, taken) if chooses else critic.q_values(seen, taken.flatten(1).float())
            )
    return torch.cat(parts, 1).double().numpy(force=True)


def _of_choices(critic: Any, seen: Any, taken: torch.Tensor) -> torch.Tensor:
    """Returns the critics' values of discrete actions [B] -> [K, B]."""
    values = critic.q_values(seen) if hasattr(critic, "q_values") else critic(seen)[None]
    return values.gather(2, taken.long().view(1, -1, 1).expand(len(values), -1, 1)).squeeze(2)


def _best_actions(model: Any, observations: ArrayObs) -> np.ndarray:
    """Returns the model's most likely actions in N states: [N, ...] in the environment's units."""
    space = model.action_space
    chosen = choices_of(model, observations, space, deterministic=True)
    return chosen.argmax(1) + space.start if isinstance(space, spaces.Discrete) else chosen[:, 0]


def _values(model: Any, observations: ArrayObs) -> np.ndarray:
    """Returns the values of its most likely actions, by the minimum of its critics: [N]"""
    return action_values(model, observations, _best_actions(model, observations)).min(0)


def _states(dataset: Dataset) -> Any:
    return mapped(lambda array: array[acted_on(dataset)], dataset.observations)


def initial_value(model: Any, dataset: Dataset) -> float:
    """E[Q(s, pi(s))] of initial states: the model's estimate of its discounted return. It diverges if the policy
    exploits errors of the critics outside of the data (Paine et al. 2020, arXiv:2007.09055)."""
    return float(_values(model, initial_observations(dataset)).mean())


def average_value(model: Any, dataset: Dataset) -> float:
    """E[Q(s, pi(s))] of all recorded states."""
    return float(_values(model, _states(dataset)).mean())


def td_error(model: Any, dataset: Dataset) -> float:
    """E[(Q(s, a) - r - gamma Q(s', pi(s')))^2] over transitions and critics. The value is 0 in terminal states, but not
    where an episode was truncated."""
    total = 0.0
    rewards_of = model.units.rewards if hasattr(model, "units") else np.asarray
    for part in dataset.chunks():
        following = np.where(part.terminations, 0.0, _values(model, part.next_observations))
        target = rewards_of(np.asarray(part.rewards, np.float64)) + model.gamma * following
        total += ((action_values(model, part.observations, part.actions) - target) ** 2).mean(0).sum()
    return float(total / len(dataset))


def soft_opc(model: Any, dataset: Dataset, threshold: float | None = None) -> float:
    """Soft off-policy classification: E[Q(s, a)] of successful episodes minus that of all (Irpan et al. 2019,
    arXiv:1906.08387, eq. 5).

    Args:
        model: with critics.
        dataset: whole episodes.
        threshold: the return from which an episode is successful; ``None``: the median.
    """
    values = action_values(model, _states(dataset), dataset.actions).min(0)
    least = float(np.median(dataset.returns)) if threshold is None else threshold
    successful = (dataset.returns >= least)[dataset.episode_numbers]
    if not successful.any():
        raise ValueError(f"threshold={threshold!r}: no episode reaches it. The best has {dataset.returns.max():.4g}.")
    return float(values[successful].mean() - values.mean())


# -- actions -----------------------------------------------------------------------------------------------------------


def action_match(model: Any, dataset: Dataset) -> float:
    """Share of discrete actions in which the model agrees with the data."""
    if not isinstance(dataset.action_space, spaces.Discrete):
        raise NotApplicableError(f"actions of {dataset.action_space} hardly ever match. Use action_distance.")
    return float((_best_actions(model, _states(dataset)) == dataset.actions.reshape(-1)).mean())


def action_distance(model: Any, dataset: Dataset) -> float:
    """E[(pi(s) - a)^2] of continuous actions, with their range scaled to [-1, 1], averaged over dimensions, too."""
    space = dataset.action_space
    if not isinstance(space, spaces.Box):
        raise NotApplicableError(f"actions of {space} have no distance. Use action_match.")
    half = (space.high.astype(np.float64) - space.low) / 2
    difference = (_best_actions(model, _states(dataset)) - dataset.actions.astype(np.float64)) / np.where(
        half > 0, half, 1
    )
    return float((difference**2).mean())


def negative_log_likelihood(model: Any, dataset: Dataset) -> float:
    """E[-log pi(a|s)], for continuous actions their density in the environment's units, see
    :func:`~polyak.evaluation.off_policy.log_probs.log_prob_of`."""
    return -float(log_prob_of(model, _states(dataset), dataset.actions).mean())


METRICS: Mapping[str, Metric] = {
    "td_error": td_error,
    "initial_value": initial_value,
    "average_value": average_value,
    "soft_opc": soft_opc,
    "action_match": action_match,
    "action_distance": action_distance,
    "negative_log_likelihood": negative_log_likelihood,
}
"""All metrics, by name."""
