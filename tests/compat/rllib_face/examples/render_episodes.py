"""Callbacks that draw an environment with a picture of its own, and keep the pictures of an episode."""

import gymnasium as gym
import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from shared import arguments, ppo, run

SAID = {}


class Walk(gym.Env):
    """To the right end of five fields within ten steps."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 4.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode = "rgb_array"
        self.place = self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.steps += 1
        self.place = max(self.place + (1 if action == 1 else -1), 0)
        there = self.place == 4
        return np.array([self.place], np.float32), 1.0 if there else -0.1, there, self.steps == 10, {}

    def render(self):
        picture = np.zeros((8, 40, 3), np.uint8)
        picture[:, 8 * self.place : 8 * self.place + 8] = 255
        return picture


class Pictures(RLlibCallback):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def on_episode_step(self, *, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs):
        picture = env.envs[env_index].render()
        SAID["picture"] = [list(picture.shape), int(picture.max())]
        self.kept.setdefault(episode.id_, []).append(picture)

    def on_episode_end(self, *, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs):
        metrics_logger.log_value("pictures", len(self.kept.pop(episode.id_, [])), reduce="mean")

    def on_sample_end(self, *, env_runner, metrics_logger, samples, **kwargs):
        SAID["under way"] = len(self.kept) <= 1


if __name__ == "__main__":
    args = arguments(default_reward=9.0).parse_args()
    config = ppo(Walk).callbacks(Pictures)
    results = run(config, args)
