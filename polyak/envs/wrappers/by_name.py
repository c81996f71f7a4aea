"""Nested observations as one level of keys, which everything behind can read."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from polyak.envs.nested_spaces import SpacePart, is_nested, parts_by_name
from polyak.envs.vec.vec_env import VecEnv, VecObservationWrapper


class NamedObservation(gym.ObservationWrapper):
    """Flattens Dict and Tuple observations of any depth to one Dict: ``{"camera": {"left": image}}`` becomes
    ``{"camera/left": image}``, and the entries of a Tuple are ``"0"``, ``"1"`` and so on.

    Args:
        env: an environment whose observation space is a Dict or a Tuple.

    Raises:
        ValueError: two parts would have the same name.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.parts = parts_by_name(env.observation_space)
        self.observation_space = _space(self.parts)

    def observation(self, observation: Any) -> dict[str, Any]:
        """An observation by the names of its parts."""
        return {name: part.of(observation) for name, part in self.parts.items()}


class VecNamedObservation(VecObservationWrapper):
    """:class:`NamedObservation` for environments that are stepped as one.

    Args:
        venv: the VecEnv to wrap; its observation space is a Dict or a Tuple.

    Raises:
        ValueError: two parts would have the same name.
    """

    def __init__(self, venv: VecEnv) -> None:
        self.parts = parts_by_name(venv.observation_space)
        super().__init__(venv, observation_space=_space(self.parts))

    def observation(self, observation: Any) -> dict[str, Any]:
        """An observation, one or a batch, by the names of its parts."""
        return {name: part.of(observation) for name, part in self.parts.items()}


def name_parts(env: gym.Env) -> gym.Env:
    """``env`` in a :class:`NamedObservation` if its observations are nested."""
    return NamedObservation(env) if is_nested(getattr(env, "observation_space", None)) else env


def _space(named: dict[str, SpacePart]) -> spaces.Dict:
    return spaces.Dict({name: part.space for name, part in named.items()})
