"""A module of one's own with convolutions, a policy head and state values, on small pictures."""

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.models.torch.misc import normc_initializer
from ray.rllib.utils.annotations import override
from shared import arguments, ppo, run

SAID = {}


class Pictures(gym.Env):
    """Eight noisy pictures, light or dark; saying which is worth 1."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (12, 12, 2), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.draw(), {}

    def step(self, action):
        reward = float(int(action) == self.light)
        self.steps += 1
        return self.draw(), reward, self.steps == 8, False, {}

    def draw(self):
        self.light = int(self.np_random.integers(2))
        return self.np_random.uniform(self.light - 1, self.light, (12, 12, 2)).astype(np.float32)


class TinyCNN(TorchRLModule, ValueFunctionAPI):
    @override(TorchRLModule)
    def setup(self):
        layers, depth = [], self.observation_space.shape[-1]
        for filters, kernel, stride in self.model_config["conv_filters"]:
            layers += [torch.nn.Conv2d(depth, filters, kernel, stride), torch.nn.ReLU()]
            depth = filters
        self.cnn = torch.nn.Sequential(*layers, torch.nn.Flatten())
        with torch.no_grad():
            width = self.cnn(torch.zeros(1, self.observation_space.shape[-1], 12, 12)).shape[1]
        self.logits = torch.nn.Linear(width, self.action_space.n)
        self.values = torch.nn.Linear(width, 1)
        normc_initializer(0.01)(self.values.weight)
        SAID["value head"] = [list(self.values.weight.shape), round(float(self.values.weight.norm()), 5)]

    @override(TorchRLModule)
    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.both(batch)[1]}

    @override(TorchRLModule)
    def _forward_train(self, batch, **kwargs):
        features, logits = self.both(batch)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: features}

    @override(ValueFunctionAPI)
    def compute_values(self, batch, embeddings=None):
        features = self.both(batch)[0] if embeddings is None else embeddings
        return self.values(features).squeeze(-1)

    def both(self, batch):
        features = self.cnn(batch[Columns.OBS].permute(0, 3, 1, 2))
        return features, self.logits(features)


if __name__ == "__main__":
    args = arguments(default_iters=100, default_timesteps=600000).parse_args()
    config = ppo(Pictures, 160, 80, lr=0.001)
    config.rl_module(rl_module_spec=RLModuleSpec(TinyCNN, model_config={"conv_filters": [[8, 4, 2], [16, 3, 2]]}))
    results = run(config, args)
