"""A module of PPO with a forward pass of its own for each of three purposes."""

import torch
from games import TAKEN, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

CALLS = {}
ROWS = {"_forward_exploration": 0, "_forward_inference": 0}


def count(name, batch):
    CALLS[name] = CALLS.get(name, 0) + 1
    if name in ROWS:
        ROWS[name] += len(batch[Columns.OBS])


class Careful(PPOTorchRLModule):
    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration", batch)
        outputs = super()._forward_exploration(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = outputs[Columns.ACTION_DIST_INPUTS] - torch.tensor([0.0, 0.0, 1e6])
        return outputs

    def _forward_inference(self, batch, **kwargs):
        count("_forward_inference", batch)
        outputs = super()._forward_inference(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = outputs[Columns.ACTION_DIST_INPUTS] + torch.tensor([0.0, 0.0, 1e6])
        return outputs

    def _forward_train(self, batch, **kwargs):
        count("_forward_train", batch)
        return super()._forward_train(batch, **kwargs)

    def compute_values(self, batch, embeddings=None):
        count("compute_values", batch)
        return super().compute_values(batch, embeddings)


def outcome():
    config = PPOConfig().environment(Counting, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=2)
    config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Careful), model_config={"fcnet_hiddens": [8]})
    config = config.evaluation(
        evaluation_interval=1,
        evaluation_duration=5,
        evaluation_config={"explore": False, "env_config": {"name": "evaluation"}},
    )
    algo = config.build_algo()
    result = algo.train()
    algo.stop()
    training, evaluation = TAKEN["training"], TAKEN["evaluation"]
    return {
        "equal": {
            "forbidden in training": training[2],
            "others in training": training[0] > 10 and training[1] > 10,
            "evaluation chooses": [n > 0 for n in evaluation],
            "evaluation's return": result["evaluation"]["env_runners"]["episode_return_mean"],
            "training steps": sum(training),
            "enough rows explored": ROWS["_forward_exploration"] >= 100,
            "enough rows inferred": ROWS["_forward_inference"] >= 50,
        },
        "called": CALLS,
    }
