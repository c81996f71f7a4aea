"""A module of action values without a catalog, with target networks, exploration and losses' values of its own."""

import copy

import torch
from games import TAKEN, Counting
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


class Values(TorchRLModule, QNetAPI, TargetNetworkAPI):
    def setup(self):
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, int(self.action_space.n)))

    def make_target_networks(self):
        count("make_target_networks")
        self.lagging = copy.deepcopy(self.net).requires_grad_(False)

    def get_target_network_pairs(self):
        count("get_target_network_pairs")
        return [(self.net, self.lagging)]

    def forward_target(self, batch):
        count("forward_target")
        return {"qf_preds": self.lagging(batch[Columns.OBS])}

    def compute_q_values(self, batch):
        return {"qf_preds": self.net(batch[Columns.OBS])}

    def compute_advantage_distribution(self, batch):
        raise AssertionError("there are no atoms")

    def _forward_inference(self, batch, **kwargs):
        count("_forward_inference")
        return {Columns.ACTIONS: self.net(batch[Columns.OBS]).argmax(-1)}

    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration")
        rows = len(batch[Columns.OBS])
        return {Columns.ACTIONS: torch.randint(0, 2, (rows,))}

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        now, then = self.net(batch[Columns.OBS]), self.net(batch[Columns.NEXT_OBS])
        with torch.no_grad():
            lagging = self.forward_target({Columns.OBS: batch[Columns.NEXT_OBS]})["qf_preds"]
        return {"qf_preds": now, "qf_next_preds": then, "qf_target_next_preds": lagging}


def outcome():
    config = DQNConfig().environment(Counting, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(
        num_steps_sampled_before_learning_starts=50,
        train_batch_size_per_learner=16,
        target_network_update_freq=40,
        lr=0.01,
        gamma=0.5,
    )
    config = config.reporting(min_sample_timesteps_per_iteration=600)
    algo = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Values)).build_algo()
    algo.train()
    module = algo.learner_group._learner.module["default_policy"].unwrapped()
    with torch.no_grad():
        values = module.net(torch.zeros(1, 4))[0]
        lagging = module.lagging(torch.zeros(1, 4))[0]
    algo.stop()
    return {
        "equal": {
            "never explored": TAKEN["training"][2],
            "explored": [n > 150 for n in TAKEN["training"][:2]],
            "better": bool(values[1] > values[0] + 0.3),
            "follows": bool((lagging - values).abs().max() < 0.3),
        },
        "called": CALLS,
    }
