"""One entry of a Dict observation in place of the whole."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper


class VecExtractDictObs(VecEnvWrapper):
    """Gives one entry of Dict observations as the observation.

    Args:
        venv: the VecEnv to wrap; its observation space is a Dict.
        key: the entry.

    Raises:
        ValueError: when the space is not a Dict or lacks the key.
    """

    passes_on = ("rewards",)

    def __init__(self, venv: VecEnv, key: str):
        space = venv.observation_space
        if not isinstance(space, spaces.Dict):
            raise ValueError(f"VecExtractDictObs needs a Dict observation space, got {space}.")
        if key not in space.spaces:
            raise ValueError(f"key={key!r} is not in the observation space, which has {list(space.spaces)}.")
        self.key = key
        super().__init__(venv, observation_space=space.spaces[key])

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        assert isinstance(observations, dict)
        return observations[self.key]

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(observations, dict)
        for index in np.flatnonzero(dones):
            if "terminal_observation" in infos[index]:
                infos[index]["terminal_observation"] = infos[index]["terminal_observation"][self.key]
        return observations[self.key], rewards, dones, infos
