"""What a model does with one observation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyak.collecting.exploration import RandomActions
from polyak.envs.masks import KEY, holds_masks
from polyak.envs.nested_spaces import as_named


def random_actions(model: Any) -> RandomActions:
    """Uniform actions, as the model's policy has them."""
    return RandomActions(model.action_space, model.policy.codec)


def allowed(model: Any, observation: Any, masks: Any) -> Any:
    """Masks as they are given, or those that a Dict observation holds; ``None``: everything is allowed."""
    supported = model.supports_masks and model.policy.supports_masks
    if masks is not None or not (supported and isinstance(observation, Mapping)):
        return masks
    return observation.get(KEY) if holds_masks(model.observation_space, model.action_space) else None


def predicted(
    model: Any, observation: Any, state: Any, episode_start: np.ndarray | None, deterministic: bool, masks: Any
) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
    """The action of a model's policy, and its next state; arguments as ``predict`` has them."""
    observation = as_named(observation, model.observation_space)
    masks = allowed(model, observation, masks)
    more = {} if masks is None else {"action_masks": masks}
    found: tuple[np.ndarray, tuple[np.ndarray, ...] | None] = model.policy.predict(
        model._as_learned(observation), state, episode_start, deterministic, **more
    )
    return found
