"""A wrapper that replaces a Dict observation by one of its entries."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from polyak.envs.vec.vec_env import VecEnv, VecObservationWrapper


class VecExtractDictObs(VecObservationWrapper):
    """Gives one entry of Dict observations as the observation.

    Args:
        venv: the VecEnv to wrap; its observation space is a Dict.
        key: the entry.

    Raises:
        ValueError: when the space is not a Dict or lacks the key.
    """

    def __init__(self, venv: VecEnv, key: str):
        space = venv.observation_space
        if not isinstance(space, spaces.Dict):
            raise ValueError(f"VecExtractDictObs needs a Dict observation space, got {space}.")
        if key not in space.spaces:
            raise ValueError(f"key={key!r} is not in the observation space, which has {list(space.spaces)}.")
        self.key = key
        super().__init__(venv, observation_space=space.spaces[key])

    def observation(self, observation: Any) -> Any:
        return observation[self.key]
