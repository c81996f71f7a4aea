"""A recurrent module whose state is no layer's: a running mean of what was seen, and how often, in nested dicts."""

import numpy as np
import torch
from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = Calls()
SEEN = {"counts": set(), "first in training": set()}


class Averages(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        CALLS.note("setup")
        self.head, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def get_initial_state(self):
        return {"seen": {"mean": np.zeros((4,), np.float32)}, "count": np.zeros((1,), np.float32)}

    def _read(self, batch):
        state = batch[Columns.STATE_IN]
        mean, count = state["seen"]["mean"], state["count"]
        rows = []
        for step in batch[Columns.OBS].unbind(1):
            count = count + 1
            mean = mean + (step - mean) / count
            rows.append(torch.cat([step, mean], -1))
        return torch.stack(rows, 1), {"seen": {"mean": mean}, "count": count}

    def _forward(self, batch, **kwargs):
        features, state = self._read(batch)
        return {Columns.ACTION_DIST_INPUTS: self.head(features), Columns.STATE_OUT: state}

    def _forward_exploration(self, batch, **kwargs):
        CALLS.note("_forward_exploration")
        SEEN["counts"] |= set(batch[Columns.STATE_IN]["count"].flatten().tolist())
        with torch.no_grad():
            return self._forward(batch, **kwargs)

    def _forward_train(self, batch, **kwargs):
        CALLS.note("_forward_train")
        SEEN["training on"] = list(batch[Columns.OBS].shape[1:])
        SEEN["first in training"] |= set(batch[Columns.STATE_IN]["count"].flatten().tolist())
        return self._forward(batch, **kwargs)

    def compute_values(self, batch, embeddings=None):
        CALLS.note("compute_values")
        return self.value(self._read(batch)[0]).squeeze(-1)


def outcome():
    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=60, minibatch_size=60, num_epochs=2)
    spec = RLModuleSpec(module_class=Averages, model_config={"max_seq_len": 5})
    algo = config.rl_module(rl_module_spec=spec).build_algo()
    result = algo.train()["learners"]["default_policy"]
    algo.stop()
    equal = {
        "counts": sorted(SEEN["counts"] - {10.0}),
        "first in training": sorted(SEEN["first in training"]),
        "training on": SEEN["training on"],
        "results": sorted({"policy_loss", "vf_loss", "entropy", "mean_kl_loss"} & set(result)),
    }
    return {"equal": equal, "called": CALLS}
