"""The module sees what was done and earned before, beside a part of the observation."""

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.env_to_module import FlattenObservations, PrevActionsPrevRewards
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from shared import arguments, ppo, run


class Repeated(gym.Env):
    """Ten steps; doing what was done two steps before is worth 1."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.done = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.done = []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.done.append(int(action))
        right = len(self.done) > 2 and self.done[-1] == self.done[-3]
        return np.full(1, len(self.done) / 10, np.float32), float(right), len(self.done) == 10, False, {}


parser = arguments(default_reward=200.0, default_timesteps=1000000)
parser.add_argument("--n-prev-rewards", type=int, default=2)
parser.add_argument("--n-prev-actions", type=int, default=3)

if __name__ == "__main__":
    args = parser.parse_args()

    def pieces(env, spaces, device):
        before = PrevActionsPrevRewards(n_prev_rewards=args.n_prev_rewards, n_prev_actions=args.n_prev_actions)
        return [before, FlattenObservations()]

    config = ppo(Repeated, lr=0.0003).env_runners(env_to_module_connector=pieces)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], vf_share_layers=True))
    results = run(config, args)
    SAID = {"extra": [args.n_prev_rewards, args.n_prev_actions]}
