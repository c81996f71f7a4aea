"""Frames are stacked before the module, and again before the learner."""

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from shared import arguments, ppo, run


class Falling(gym.Env):
    """A dot falls through a picture in twelve steps; action 1 is worth 1 in its lower half, action 0 in the upper."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (12, 12, 1), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.height = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height = 0
        return self.picture(), {}

    def step(self, action):
        reward = float(int(action) == int(self.height >= 6))
        self.height += 1
        return self.picture(), reward, self.height == 12, False, {}

    def picture(self):
        picture = np.zeros((12, 12, 1), np.float32)
        picture[min(self.height, 11), 6] = 1.0
        return picture


def stack_before_module(env, spaces, device):
    return FrameStackingEnvToModule(num_frames=4)


def stack_before_learner(observation_space, action_space):
    return FrameStackingLearner(num_frames=4)


if __name__ == "__main__":
    args = arguments().parse_args()
    config = ppo(Falling, 240, 60, learner_connector=stack_before_learner)
    config.env_runners(env_to_module_connector=stack_before_module)
    config.rl_module(model_config=DefaultModelConfig(conv_filters=[[4, 4, 2], [8, 4, 2]], vf_share_layers=True))
    results = run(config, args)
