"""Observations made of several things: a Dict of a picture, a vector and a number goes to MultiInputPolicy."""

import argparse

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize


class Lamps(gym.Env):
    """A row of lamps: the picture shows which one is lit, the vector how long, and the right answer is its number."""

    def __init__(self, lamps: int = 3) -> None:
        self.lamps = lamps
        self.observation_space = spaces.Dict(
            {
                "picture": spaces.Box(0, 255, (36, 36, 1), np.uint8),
                "vector": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "last": spaces.Discrete(lamps),
            }
        )
        self.action_space = spaces.Discrete(lamps)
        self._lit, self._last, self._time = 0, 0, 0

    def _observe(self) -> dict[str, np.ndarray | int]:
        picture = np.zeros((36, 36, 1), np.uint8)
        width = 36 // self.lamps
        picture[:, self._lit * width : (self._lit + 1) * width] = 255
        vector = np.array([self._time / 10, -self._time / 10], np.float32)
        return {"picture": picture, "vector": vector, "last": self._last}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self._lit, self._last, self._time = int(self.np_random.integers(self.lamps)), 0, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        reward = float(int(action) == self._lit)
        self._last, self._time = int(action), self._time + 1
        self._lit = int(self.np_random.integers(self.lamps))
        return self._observe(), reward, False, self._time >= 10, {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    options = parser.parse_args()
    check_env(Lamps())

    model = PPO("MultiInputPolicy", Lamps(), n_steps=64, device="cpu", seed=0).learn(options.steps)
    observation, _ = Lamps().reset(seed=0)
    action, _ = model.predict(observation, deterministic=True)
    print("action:", int(action), "networks:", sorted(model.policy.features_extractor.extractors))

    DQN("MultiInputPolicy", Lamps(), buffer_size=500, learning_starts=50, device="cpu").learn(100)

    # Statistics of the vector only; the picture and the number stay as they are.
    env = VecNormalize(make_vec_env(Lamps, n_envs=2), norm_obs_keys=["vector"])
    PPO("MultiInputPolicy", env, n_steps=32, device="cpu").learn(128)
    print("normalised:", sorted(env.obs_rms))


if __name__ == "__main__":
    main()
