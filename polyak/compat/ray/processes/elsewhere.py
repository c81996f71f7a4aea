"""Environments that other processes step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import create_empty_array

from polyak.compat.ray.environments import has_channels_last, own_action_space
from polyak.envs import VecEnv


class Spaces(NamedTuple):
    """What must be known of environments that are elsewhere."""

    observations: gym.Space
    actions: gym.Space
    own_actions: gym.Space
    """Of the environments themselves, in their own units."""
    turned: bool
    """Whether there are images with the channels last."""

    @classmethod
    def of(cls, env: VecEnv) -> Spaces:
        """Those of environments that are here."""
        return cls(env.observation_space, env.action_space, own_action_space(env), has_channels_last(env))


class Elsewhere(VecEnv):
    """Environments that other processes step, as a model sees them that only learns from what they bring.

    Args:
        spaces: of one.
        number: how many.
    """

    def __init__(self, spaces: Spaces, number: int) -> None:
        super().__init__(number, spaces.observations, spaces.actions)

    def reset(self) -> Any:
        """Nothing to look at, in the shape of what there would be."""
        self._reset_seeds()
        self._reset_options()
        return create_empty_array(self.observation_space, self.num_envs, fn=np.zeros)

    def step_async(self, actions: Any) -> None:
        """Refuse.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("these environments are stepped by other processes.")

    step_wait: Any = step_async

    def close(self) -> None:
        """Nothing: they are closed where they are."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(f"the environments are in other processes, and so is their {attr_name!r}.")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"the environments are in other processes, and so is their {attr_name!r}.")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"the environments are in other processes, and so is their {method_name!r}.")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class MasksElsewhere:
    """What environments allow that other processes step: here nothing is chosen, so nothing is forbidden.

    Args:
        rows: how many environments.
        size: entries of a mask.
    """

    def __init__(self, rows: int, size: int) -> None:
        self._all = np.ones((rows, size), bool)

    def after_reset(self, observations: Any) -> np.ndarray:
        """[N, M] True."""
        return self._all

    def after_step(self, observations: Any, dones: np.ndarray, infos: Sequence[dict[str, Any]]) -> np.ndarray:
        """[N, M] True."""
        return self._all

    def final(self, row: int, successors: Any, info: dict[str, Any]) -> Any:
        """[M] True."""
        return self._all[row]
