"""What modules say of the columns that they read and return, default ones and one with specs of its own."""

import gymnasium as gym
import numpy as np
from games import Calls
from ray.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = Calls()


class Tells(TorchRLModule):
    def setup(self):
        CALLS.note("setup")
        self.net = nn.Linear(4, 3)

    def input_specs_train(self):
        return [*(super().input_specs_train() or [Columns.OBS]), Columns.ACTIONS]

    def output_specs_exploration(self):
        return [Columns.ACTIONS]

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.net(batch[Columns.OBS])}


def outcome():
    found = {}
    for kind, catalog, more in (
        (Tells, None, {}),
        (DefaultPPOTorchRLModule, PPOCatalog, {}),
        (DefaultPPOTorchRLModule, PPOCatalog, {"use_lstm": True, "lstm_cell_size": 5}),
        (DefaultDQNTorchRLModule, DQNCatalog, {"num_atoms": 1, "double_q": True, "epsilon": 0.1}),
    ):
        module = RLModuleSpec(
            module_class=kind,
            observation_space=gym.spaces.Box(-1.0, 1.0, (4,), np.float32),
            action_space=gym.spaces.Discrete(3),
            model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8], **more},
            catalog_class=catalog,
        ).build()
        said = {}
        for way in ("input", "output"):
            for when in ("inference", "exploration", "train"):
                said[f"{way}_{when}"] = sorted(map(str, getattr(module, f"{way}_specs_{when}")() or []))
        found[f"{kind.__name__} {sorted(more)}"] = said
    return {"equal": found, "called": CALLS}
