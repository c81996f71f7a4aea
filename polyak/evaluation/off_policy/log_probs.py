"""Log-probabilities of recorded actions under a policy, in the units in which they were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import mapped
from polyak.envs.normalisation_scale import shown_to
from polyak.experience.batch import ArrayObs
from polyak.experience.datasets.episodes import count
from polyak.nn.codec import ActionCodec
from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.gaussian import Gaussian
from polyak.nn.policies.base import Policy

BATCH = 8192
"""Batch size for observations."""


class NotApplicableError(ValueError):
    """A policy does not support a method of evaluation; the message gives the reason and an alternative."""


def networks_of(model: Any) -> Policy:
    """Returns the networks of a model without recurrent state, in evaluation mode.

    Raises:
        NotApplicableError: it has no networks of polyak, or they are recurrent.
    """
    policy = getattr(model, "policy", model)
    if not isinstance(policy, Policy):
        raise NotApplicableError(f"{model!r} has no networks of polyak: only its actions can be evaluated.")
    if policy.initial_memory(1) is not None:
        raise NotApplicableError(
            f"{type(model).__name__} acts on a recurrent state, and single transitions do not hold that. Use a policy "
            "that is not recurrent."
        )
    policy.set_training_mode(False)
    return policy


def tensors_for(model: Any, observations: ArrayObs) -> Any:
    """Converts observations [B, ...] of an environment to a model's network inputs."""
    seen: Any = shown_to(model, observations)
    if model is not networks_of(model):
        seen = model._as_learned(seen)
    return networks_of(model).obs_to_tensor(seen)[0]


def has_distribution(model: Any) -> bool:
    """Whether :func:`distribution_of` applies."""
    policy = getattr(model, "policy", model)
    return isinstance(policy, Policy) and hasattr(_speaker(policy), "get_distribution")


def _speaker(policy: Policy) -> Any:
    return policy if hasattr(policy, "get_distribution") else getattr(policy, "actor", None)


@torch.no_grad()
def distribution_of(model: Any, observations: ArrayObs) -> Distribution:
    """Returns the distributions of a model's actions in B states, in the network's units.

    Raises:
        NotApplicableError: it is deterministic, recurrent, or has no networks of polyak.
    """
    policy = networks_of(model)
    if not has_distribution(model):
        raise NotApplicableError(
            f"{type(model).__name__} acts deterministically: it has no density, and the ratio of its probability to "
            "that of the behaviour is 0 or infinite. Use fitted Q evaluation (FQE), which asks for actions only."
        )
    distribution: Distribution = _speaker(policy).get_distribution(tensors_for(model, observations))
    allowed = getattr(model, "_allowed", lambda observations, masks: None)(observations, None)
    return distribution if allowed is None else distribution.masked(torch.as_tensor(allowed, device=policy.device))


def log_prob_of(model: Any, observations: ArrayObs, actions: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities of recorded actions under a model; for continuous ones, their density in recorded
    units.

    A policy whose actions are clipped to the bounds of a Box, such as PPO's, has a positive probability at each bound,
    which replaces the density of an action at a bound.

    Args:
        model: a model with an action distribution, or its policy.
        observations: [N, ...] as the environment returned them.
        actions: [N, ...] as the environment took them.

    Returns:
        [N] float64

    Raises:
        NotApplicableError: the model is deterministic or recurrent.
    """
    parts = [
        _log_prob(model, mapped(lambda array, at=at: array[at], observations), actions[at])
        for at in slices(count(observations))
    ]
    return np.concatenate(parts)


def slices(total: int, size: int = BATCH) -> list[slice]:
    """Returns slices from 0 to ``total`` in batches."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


@torch.no_grad()
def _log_prob(model: Any, observations: ArrayObs, actions: np.ndarray) -> np.ndarray:
    distribution, policy = distribution_of(model, observations), networks_of(model)
    codec: ActionCodec = policy.codec
    taken = torch.as_tensor(np.asarray(codec.from_env(actions)), device=policy.device)
    if isinstance(codec.space, spaces.Discrete):
        return _array(distribution.log_prob(taken.flatten()))
    if not isinstance(codec.space, spaces.Box):
        return _array(distribution.log_prob(taken.flatten(1)))
    taken = taken.flatten(1).float()
    if codec.squash:
        half = (codec.space.high.astype(np.float64) - codec.space.low).reshape(-1) / 2
        return _array(distribution.log_prob(taken)) - np.log(half[half > 0]).sum()
    if not isinstance(distribution, Gaussian):
        raise NotApplicableError(f"the actions of a {type(distribution).__name__} are clipped in a way not known here.")
    low, high = (
        torch.as_tensor(bound.reshape(-1), device=policy.device) for bound in (codec.space.low, codec.space.high)
    )
    return _array(clipped_log_prob(distribution, taken, low, high))


def clipped_log_prob(gaussian: Gaussian, actions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Returns the log-probability of clipped Gaussian actions: the density within the bounds, and on a bound the
    probability of the bound or anything beyond. actions [B, A], bounds [A] -> [B] float64"""
    mean, std, taken = gaussian.mean.double(), gaussian.std.double(), actions.double()
    slack = torch.finfo(torch.float32).eps * torch.maximum(low.abs(), high.abs()).nan_to_num(posinf=0.0).double()
    within = torch.distributions.Normal(mean, std).log_prob(taken)
    below = torch.special.log_ndtr((low.double() - mean) / std)
    above = torch.special.log_ndtr((mean - high.double()) / std)
    each_dimension = torch.where(taken <= low + slack, below, torch.where(taken >= high - slack, above, within))
    return each_dimension.sum(1)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.double().numpy(force=True)
