"""A module of DQN that adds to the exploration of the default one, and asks how often it takes random actions."""

import torch
from games import TAKEN, Counting
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

CALLS, SEEN = {}, []


class NeverTwo(DefaultDQNTorchRLModule):
    def _forward_exploration(self, batch, t):
        CALLS["_forward_exploration"] = CALLS.get("_forward_exploration", 0) + 1
        outputs = super()._forward_exploration(batch, t)
        SEEN.append((t, self.epsilon_schedule.get_current_value()))
        actions = outputs[Columns.ACTIONS]
        return {**outputs, Columns.ACTIONS: torch.where(actions == 2, torch.zeros_like(actions), actions)}


def outcome():
    config = DQNConfig().environment(Counting, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(num_steps_sampled_before_learning_starts=1000, epsilon=[[0, 1.0], [200, 1.0], [400, 0.5]])
    config = config.reporting(min_sample_timesteps_per_iteration=300)
    spec = RLModuleSpec(module_class=NeverTwo)
    algo = config.rl_module(rl_module_spec=spec, model_config={"fcnet_hiddens": [8]}).build_algo()
    algo.train()
    algo.stop()
    zero, one, two = TAKEN["training"]
    return {
        "equal": {
            "twice as many zeros": 1.3 < zero / one < 3.0,
            "twos": two,
            "at first": SEEN[0][1],
            "as planned": all(abs(e - min(1.0, 1.5 - t / 400)) < 1e-6 for t, e in SEEN),
        },
        "called": CALLS,
    }
