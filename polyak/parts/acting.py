"""What a model does with one observation."""

from collections.abc import Mapping
from typing import Any

from polyak.arrays import Flags, Memory, Predicted
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


def predict(
    self: Any,
    observation: Any,
    state: Memory = None,
    episode_start: Flags = None,
    deterministic: bool = False,
    *,
    action_masks: Flags = None,
) -> Predicted:
    """The policy's action for one observation or a batch of them.

    Args:
        observation: one, or N stacked, as the model's environment returns them; nested observations also as the
            environment itself has them, before their parts got names. A model that learned under
            ``VecNormalize`` and was loaded without an environment takes them as they are before normalisation: the
            statistics are in its file.
        state: a recurrent policy's memory; others hand it back.
        episode_start: [N] where a recurrent policy forgets.
        deterministic: the most likely action instead of a sample.
        action_masks: which choices are allowed, [M] or [N, M] bool (see :mod:`polyak.envs.masks`); ``None``: all,
            or what a Dict observation says under ``"action_mask"``.

    Returns:
        the action or actions, an array in the environment's units, and the next state. Of a Dict or Tuple space one
        action is a value of the space, and several are a list of such, which type checkers are not shown.
    """
    observation = as_named(observation, self.observation_space)
    masks = allowed(self, observation, action_masks)
    more = {} if masks is None else {"action_masks": masks}
    found: Predicted = self.policy.predict(self._as_learned(observation), state, episode_start, deterministic, **more)
    return found
