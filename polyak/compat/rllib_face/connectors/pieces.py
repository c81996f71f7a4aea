"""RLlib's own pieces of observations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.compat.rllib_face.columns import Columns
from polyak.compat.rllib_face.connectors.base import Batch, ConnectorV2
from polyak.compat.rllib_face.models.preprocessors import get_preprocessor
from polyak.hyperparameters.declaration import require


def _of_one_agent(named: dict[str, Any]) -> dict[str, Any]:
    """Drops arguments that must not be set with one agent, after checking them."""
    for name in ("multi_agent", "agent_ids"):
        value = named.pop(name, None)
        require(not value, name, value, "algorithms here train one agent. Leave it out.")
    return named


class Rewriting(ConnectorV2):
    """A piece that RLlib needs twice: before a module and before a learner."""

    as_learner_connector = False

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        space = input_observation_space
        return space if self.as_learner_connector else self._space_of(space)

    def _space_of(self, space: Any) -> Any:
        """Returns the space of its outputs for observations of a space."""
        raise NotImplementedError

    def same_as(self, other: Any) -> bool:
        """Whether another makes the same of observations."""
        return type(other) is type(self) and self._settings() == other._settings()

    def _settings(self) -> Any:
        raise NotImplementedError


class SingleAgentObservationPreprocessor(ConnectorV2):
    """A piece that needs nothing but the newest observation: write :meth:`preprocess`."""

    def preprocess(self, observation: Any, episode: Any) -> Any:
        """Returns the observation that takes its place."""
        raise NotImplementedError(f"{type(self).__name__} must write preprocess(observation, episode).")

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        for episode in episodes:
            new = self.preprocess(episode.get_observations(-1), episode)
            episode.set_observations(at_indices=-1, new_data=new)
        return batch


class FlattenObservations(Rewriting, SingleAgentObservationPreprocessor):
    """Flattens observations of any space to one array [D] float32: entries of a Dict by their keys, choices as one-hot
    vectors.

    Args:
        spaces: the spaces of its inputs, and of the environment's actions; ``None``: filled in.
        as_learner_connector: for ``learner_connector``, with an equal piece before the module: training uses the
            module's inputs.
        keys_to_remove: entries of a Dict that are left out.
        named: spaces by their names; ``multi_agent`` and ``agent_ids`` must not be set.
    """

    def __init__(
        self,
        *spaces: Any,
        as_learner_connector: bool = False,
        keys_to_remove: Sequence[str] | None = None,
        **named: Any,
    ) -> None:
        self.as_learner_connector, self._left_out = as_learner_connector, tuple(keys_to_remove or ())
        super().__init__(*spaces, **_of_one_agent(named))

    def _space_of(self, space: Any) -> Any:
        if self._left_out:
            unknown = not isinstance(space, spaces.Dict) or sorted(set(self._left_out) - set(space.spaces))
            require(not unknown, "keys_to_remove", list(self._left_out), f"observations are {space}.")
            space = spaces.Dict({name: part for name, part in space.spaces.items() if name not in self._left_out})
        self._flat = get_preprocessor(space)(space)
        return spaces.Box(-np.inf, np.inf, (self._flat.size,), np.float32)

    def preprocess(self, observation: Any, episode: Any) -> Any:
        return np.asarray(self._flat.transform(observation), np.float32).ravel()

    def _settings(self) -> Any:
        return self._left_out


class FrameStacking(Rewriting):
    """Stacks the last images [H, W, 1] as channels [H, W, num_frames], the newest last; zeros replace missing ones.

    Args:
        spaces: the spaces of its inputs, and of the environment's actions; ``None``: filled in.
        num_frames: number of images.
        as_learner_connector: for ``learner_connector``, with an equal piece before the module: training uses the
            module's inputs.
        named: see :class:`FlattenObservations`.
    """

    def __init__(self, *spaces: Any, num_frames: int = 1, as_learner_connector: bool = False, **named: Any) -> None:
        require(num_frames >= 1, "num_frames", num_frames, "it must be at least 1.")
        self.num_frames, self.as_learner_connector = num_frames, as_learner_connector
        super().__init__(*spaces, **_of_one_agent(named))

    def _space_of(self, space: Any) -> Any:
        fits = isinstance(space, spaces.Box) and len(space.shape) == 3 and space.shape[-1] == 1
        require(fits, "observation_space", space, "images to be stacked have the shape [height, width, 1].")
        low, high = (np.repeat(bound, self.num_frames, -1) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        for episode in episodes:
            frames = episode.get_observations(slice(-self.num_frames, None), fill=0.0)
            self.add_batch_item(batch, Columns.OBS, np.concatenate(frames, -1), episode)
        return batch

    def _settings(self) -> Any:
        return self.num_frames


FrameStackingEnvToModule = partial(FrameStacking, as_learner_connector=False)
FrameStackingLearner = partial(FrameStacking, as_learner_connector=True)


class PrevActionsPrevRewards(SingleAgentObservationPreprocessor):
    """Observations as a Dict of themselves, of the last actions side by side (choices as a 1 among zeros) and of the
    last rewards; before the first there are zeros.

    Args:
        spaces: the spaces of its inputs, and of the environment's actions; ``None``: filled in.
        n_prev_actions: number of actions; 0: none.
        n_prev_rewards: number of rewards; 0: none.
        named: see :class:`FlattenObservations`.
    """

    ORIG_OBS_KEY = "_orig_obs"
    PREV_ACTIONS_KEY = "prev_n_actions"
    PREV_REWARDS_KEY = "prev_n_rewards"

    def __init__(self, *spaces: Any, n_prev_actions: int = 1, n_prev_rewards: int = 1, **named: Any) -> None:
        self.n_prev_actions, self.n_prev_rewards = n_prev_actions, n_prev_rewards
        super().__init__(*spaces, **_of_one_agent(named))

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        choices = isinstance(input_action_space, spaces.Discrete | spaces.MultiDiscrete)
        fix = "the actions are neither choices nor arrays of numbers."
        require(choices or isinstance(input_action_space, spaces.Box), "action_space", input_action_space, fix)
        found = {self.ORIG_OBS_KEY: input_observation_space}
        if self.n_prev_actions:
            width = spaces.flatdim(input_action_space) * self.n_prev_actions
            low, high = (0.0, 1.0) if choices else (-np.inf, np.inf)
            found[self.PREV_ACTIONS_KEY] = spaces.Box(low, high, (width,), np.float32)
        if self.n_prev_rewards:
            found[self.PREV_REWARDS_KEY] = spaces.Box(-np.inf, np.inf, (self.n_prev_rewards,), np.float32)
        return spaces.Dict(found)

    def preprocess(self, observation: Any, episode: Any) -> Any:
        found = {self.ORIG_OBS_KEY: observation}
        if self.n_prev_actions:
            wanted = slice(-self.n_prev_actions, None)
            actions = episode.get_actions(wanted, fill=0.0, one_hot_discrete=True)
            found[self.PREV_ACTIONS_KEY] = np.concatenate([np.asarray(one, np.float32).ravel() for one in actions])
        if self.n_prev_rewards:
            rewards = episode.get_rewards(slice(-self.n_prev_rewards, None), fill=0.0)
            found[self.PREV_REWARDS_KEY] = np.asarray(rewards, np.float32)
        return found
