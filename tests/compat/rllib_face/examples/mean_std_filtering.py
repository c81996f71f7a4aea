"""Observations of very different sizes are learned from less their mean, divided by their deviation."""

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.env_to_module import MeanStdFilter
from shared import arguments, ppo, run


class Lopsided(gym.ObservationWrapper):
    """CartPole's numbers, one of them a thousand times larger, and moved."""

    def __init__(self, config=None):
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, observation):
        return (observation * np.array([1.0, 1.0, 1000.0, 1.0]) + 7.0).astype(np.float32)


def filtered(env, spaces, device):
    return MeanStdFilter()


parser = arguments(default_iters=500, default_timesteps=500000, default_reward=-300.0)

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(Lopsided, 256, 128, gamma=0.95, lr=0.0003, lambda_=0.1, vf_clip_param=10.0)
    config.env_runners(num_envs_per_env_runner=2, env_to_module_connector=filtered)
    results = run(config, args)
