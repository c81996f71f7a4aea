"""DQN by a module that reads from its observations which actions there are, explores among these, and values others
low."""

import torch
from games import TAKEN, Calls, Doors
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = Calls()
SEEN = {}


class Among(TorchRLModule, QNetAPI, TargetNetworkAPI):
    def setup(self):
        CALLS.note("setup")
        SEEN["space"] = sorted(self.observation_space.spaces)
        self.net = nn.Linear(self.observation_space["observations"].shape[0], int(self.action_space.n))

    def make_target_networks(self):
        self.lagging = nn.Linear(self.net.in_features, self.net.out_features).requires_grad_(False)
        self.lagging.load_state_dict(self.net.state_dict())

    def get_target_network_pairs(self):
        return [(self.net, self.lagging)]

    def _values(self, net, observations):
        shut = observations["action_mask"] == 0
        return net(observations["observations"]).masked_fill(shut, -1000.0)

    def compute_q_values(self, batch):
        return {"qf_preds": self._values(self.net, batch[Columns.OBS])}

    def compute_advantage_distribution(self, batch):
        raise AssertionError("there are no atoms")

    def forward_target(self, batch):
        return {"qf_preds": self._values(self.lagging, batch[Columns.OBS])}

    def _forward_inference(self, batch, **kwargs):
        CALLS.note("_forward_inference")
        return {Columns.ACTIONS: self.compute_q_values(batch)["qf_preds"].argmax(-1)}

    def _forward_exploration(self, batch, **kwargs):
        CALLS.note("_forward_exploration")
        return {Columns.ACTIONS: torch.multinomial(batch[Columns.OBS]["action_mask"], 1).squeeze(-1)}

    def _forward_train(self, batch, **kwargs):
        CALLS.note("_forward_train")
        then = {Columns.OBS: batch[Columns.NEXT_OBS]}
        return {
            "qf_preds": self._values(self.net, batch[Columns.OBS]),
            "qf_next_preds": self._values(self.net, then[Columns.OBS]),
            "qf_target_next_preds": self.forward_target(then)["qf_preds"],
        }


def outcome():
    config = DQNConfig().environment(Doors).env_runners(num_env_runners=0)
    config.training(num_steps_sampled_before_learning_starts=30, train_batch_size_per_learner=16, gamma=0.5, lr=0.05)
    config.evaluation(evaluation_interval=1, evaluation_duration=3)
    config.reporting(min_sample_timesteps_per_iteration=400, min_time_s_per_iteration=0)
    algo = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Among)).build_algo()
    result = algo.train()
    algo.stop()
    equal = {
        **SEEN,
        "all doors": [n > 50 for n in TAKEN["training"]],
        "finite": bool(abs(result["learners"]["default_policy"]["qf_mean"]) < 50),
        "greedy": bool(result["evaluation"]["env_runners"]["episode_return_mean"] > 4),
    }
    return {"equal": equal, "called": CALLS}
