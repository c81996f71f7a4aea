"""A module of DQN that explores by itself, and chooses otherwise without exploration."""

import torch
from games import TAKEN, Counting
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

CALLS = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


class Stubborn(DefaultDQNTorchRLModule):
    def _forward_exploration(self, batch, t):
        count("_forward_exploration")
        return {Columns.ACTIONS: torch.zeros(len(batch[Columns.OBS]), dtype=torch.int64)}

    def _forward_inference(self, batch):
        count("_forward_inference")
        return {Columns.ACTIONS: torch.full((len(batch[Columns.OBS]),), 2)}

    def _forward_train(self, batch):
        count("_forward_train")
        outputs = super()._forward_train(batch)
        return outputs


def outcome():
    config = DQNConfig().environment(Counting, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(num_steps_sampled_before_learning_starts=50, train_batch_size_per_learner=8)
    config = config.reporting(min_sample_timesteps_per_iteration=100)
    config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Stubborn), model_config={"fcnet_hiddens": [8]})
    config = config.evaluation(
        evaluation_interval=1,
        evaluation_duration=5,
        evaluation_config={"explore": False, "env_config": {"name": "evaluation"}},
    )
    algo = config.build_algo()
    algo.train()
    algo.stop()
    return {
        "equal": {"training": [n > 0 for n in TAKEN["training"]], "evaluation": [n > 0 for n in TAKEN["evaluation"]]},
        "called": CALLS,
    }
