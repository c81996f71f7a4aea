"""The task becomes harder once it is solved: a callback changes the environments of all runners."""

from functools import partial

import gymnasium as gym
import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN
from shared import arguments, ppo, run

SAID = {"lengths": []}


class Field(gym.Env):
    """Twelve steps; the sum of actions 1 up to a length is the return."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 12.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length = (config or {}).get("length", 4)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        return np.array([self.steps], np.float32), float(action == 1), over, False, {}


def remote_fn(env_runner, length):
    for env in env_runner.env.unwrapped.envs:
        env.unwrapped.length = length


class Harder(RLlibCallback):
    def on_algorithm_init(self, *, algorithm, **kwargs):
        algorithm._length = 4

    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        if result[ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN] > 1.0 and algorithm._length < 8:
            algorithm._length += 2
            algorithm.env_runner_group.foreach_env_runner(partial(remote_fn, length=algorithm._length))
        result["length"] = algorithm._length
        SAID["lengths"].append(algorithm._length)


parser = arguments(default_iters=100, default_timesteps=600000, default_reward=1000.0)

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(Field, 240, 120).environment(env_config={"length": 4}).callbacks(Harder)
    results = run(config, args)
    SAID["length"] = results["length"]
