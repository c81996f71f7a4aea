"""A function of one's own evaluates in several environments and puts the result together."""

from functools import partial

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN
from shared import arguments, ppo, run

SAID = {}


class Corridor(gym.Env):
    """Forward (1) and back (0) to the end of a corridor."""

    def __init__(self, config=None):
        self.end = (config or {}).get("corridor_length", 5)
        self.observation_space = gym.spaces.Box(0.0, 999.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.place = self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.place = max(self.place + (1 if action == 1 else -1), 0)
        there = self.place >= self.end
        return np.array([self.place], np.float32), 1.0 if there else -0.01, there, self.steps >= 50, {}


def set_length(env_runner, length):
    for env in env_runner.env.unwrapped.envs:
        env.unwrapped.end = length


def custom_eval_function(algorithm, eval_workers):
    returns, steps = [], 0
    for length in (3, 6):
        eval_workers.foreach_env_runner(partial(set_length, length=length))
        episodes = eval_workers.local_env_runner.sample(num_episodes=2)
        returns.append([episode.get_return() for episode in episodes])
        steps += sum(map(len, episodes))
        SAID[f"episodes of {length}"] = len(episodes)
        SAID["shortest"] = min(map(len, episodes)) >= 3
    found = {ENV_RUNNER_RESULTS: {EPISODE_RETURN_MEAN: float(np.mean(returns))}, "of_lengths": [3, 6]}
    return found, steps, steps


parser = arguments(default_iters=50, default_reward=0.7, default_timesteps=50000)

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(Corridor).environment(env_config={"corridor_length": 5})
    config.evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=0,
        custom_evaluation_function=custom_eval_function,
        evaluation_config=PPOConfig.overrides(explore=True),
    )
    results = run(config, args)
