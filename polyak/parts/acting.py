"""Prediction of actions from observations."""

from collections.abc import Mapping
from typing import Any

from polyak.arrays import Flags, Memory, Predicted
from polyak.collecting.exploration import RandomActions
from polyak.envs.masks import KEY, holds_masks
from polyak.envs.nested_spaces import as_named


def random_actions(model: Any) -> RandomActions:
    """Returns uniform random actions in the units of the model's policy."""
    return RandomActions(model.action_space, model.policy.codec)


def allowed(model: Any, observation: Any, masks: Any) -> Any:
    """Returns the given masks, or those inside a Dict observation; ``None``: everything is allowed."""
    supported = model.supports_masks and model.policy.supports_masks
    if masks is not None or not (supported and isinstance(observation, Mapping)):
        return masks
    return observation.get(KEY) if holds_masks(model.observation_space, model.action_space) else None


def predict(
    self: Any,
    observation: Any,
    state: Memory = None,
    episode_start: Flags = None,
    deterministic: bool = False,
    *,
    action_masks: Flags = None,
) -> Predicted:
    """Returns the policy's action for one observation or a batch of them.

    Args:
        observation: one, or N stacked, as the model's environment returns them; nested observations also in the
            environment's original structure. A model that was trained with ``VecNormalize`` and loaded without an
            environment takes observations before normalisation: the statistics are in its file.
        state: a recurrent policy's state; other policies return it unchanged.
        episode_start: [N] where a recurrent policy resets its state.
        deterministic: the most likely action instead of a sample.
        action_masks: which choices are allowed, [M] or [N, M] bool (see :mod:`polyak.envs.masks`); ``None``: all, or
            ``"action_mask"`` of a Dict observation.

    Returns:
        the action or actions, an array in the environment's units, and the next state. For a Dict or Tuple space one
        action is a value of the space, and several are a list of values, which type checkers are not shown.
    """
    observation = as_named(observation, self.observation_space)
    masks = allowed(self, observation, action_masks)
    more = {} if masks is None else {"action_masks": masks}
    found: Predicted = self.policy.predict(self._as_learned(observation), state, episode_start, deterministic, **more)
    return found
