"""The actions of a policy in recorded states, computed once in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.arrays import mapped
from polyak.envs.normalisation_scale import shown_to
from polyak.evaluation.off_policy.log_probs import distribution_of, has_distribution, networks_of, slices
from polyak.experience.batch import ArrayObs
from polyak.experience.datasets.episodes import count
from polyak.nn.distributions.discrete import Categorical, SparseCategorical
from polyak.nn.policies.base import Policy


def can_act(policy: Any) -> bool:
    """Whether a policy is a model, another object with ``predict``, or a function."""
    return not isinstance(policy, type) and (hasattr(policy, "predict") or callable(policy))


def choices_of(
    policy: Any, observations: ArrayObs, action_space: spaces.Space, n_samples: int = 1, deterministic: bool = False
) -> np.ndarray:
    """Returns the actions of a policy in N states.

    Args:
        policy: a model, another object with ``predict(observations, deterministic=...)``, or a function of one
            observation.
        observations: [N, ...] as the environment returned them.
        action_space: a Box or a Discrete.
        n_samples: for a Box, number of sampled actions in each state.
        deterministic: only the most likely actions.

    Returns:
        for a Box, actions [N, M, ...] in the environment's units, M = ``n_samples`` or 1; for a Discrete, probabilities
            [N, A]: the policy's own, or 1 for its deterministic action if it has none.

    Raises:
        NotApplicableError: the policy is recurrent.
        ValueError: it returns something that is not an action of the space.
    """
    if isinstance(getattr(policy, "policy", policy), Policy):
        networks_of(policy)  # refuses recurrent policies
    parts = []
    for at in slices(count(observations)):
        seen = mapped(lambda array, at=at: array[at], observations)
        if not isinstance(action_space, spaces.Discrete):
            draws = n_samples if _draws(policy, deterministic) else 1
            parts.append(np.stack([_actions(policy, seen, action_space, deterministic) for _ in range(draws)], 1))
        elif has_distribution(policy) and not deterministic:
            parts.append(_probabilities(policy, seen))
        else:
            chosen = _actions(policy, seen, action_space, True).astype(np.int64) - action_space.start
            parts.append(np.eye(int(action_space.n), dtype=np.float32)[chosen])
    return np.concatenate(parts)


def _draws(policy: Any, deterministic: bool) -> bool:
    """Whether a second call could return another action."""
    known = isinstance(getattr(policy, "policy", policy), Policy)
    return not deterministic and hasattr(policy, "predict") and (not known or has_distribution(policy))


def _actions(policy: Any, observations: ArrayObs, space: spaces.Space, deterministic: bool) -> np.ndarray:
    """Returns actions [B, ...] in the environment's units."""
    n = count(observations)
    if hasattr(policy, "predict"):
        actions = np.asarray(policy.predict(shown_to(policy, observations), deterministic=deterministic)[0])
    else:
        rows = range(n)
        actions = np.stack([np.asarray(policy(mapped(lambda array, r=row: array[r], observations))) for row in rows])
    shape = (n, *(space.shape or ()))
    if actions.size != np.prod(shape):
        raise ValueError(f"{policy!r:.100} gave actions of shape {actions.shape}, but {space} wants {shape}.")
    actions = actions.reshape(shape)
    if isinstance(space, spaces.Box):
        return np.clip(actions, space.low, space.high)
    if isinstance(space, spaces.Discrete) and not set(np.unique(actions)) <= set(range(*_range(space))):
        raise ValueError(f"{policy!r:.100} chose {actions.min()} to {actions.max()}, which are not all in {space}.")
    return actions


def _range(space: spaces.Discrete) -> tuple[int, int]:
    return int(space.start), int(space.start) + int(space.n)


def _probabilities(model: Any, observations: ArrayObs) -> np.ndarray:
    """Returns probabilities [B, A] float32."""
    distribution = distribution_of(model, observations)
    assert isinstance(distribution, Categorical | SparseCategorical)
    return distribution.probs.numpy(force=True)
