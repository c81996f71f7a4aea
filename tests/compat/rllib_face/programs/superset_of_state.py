"""Modules built for acting alone take the state of those that learn, of which they have a part."""

import gymnasium as gym
import numpy as np
import torch
from games import Calls
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = Calls()


class Small(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    def setup(self):
        CALLS.note("setup")
        self.body, self.pi, self.vf = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 1)

    def get_non_inference_attributes(self):
        CALLS.note("get_non_inference_attributes")
        return ["vf"]

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(torch.tanh(self.body(batch[Columns.OBS])))}

    def compute_values(self, batch, embeddings=None):
        return self.vf(torch.tanh(self.body(batch[Columns.OBS]))).squeeze(-1)


def spec(kind, inference_only):
    return RLModuleSpec(
        module_class=kind,
        observation_space=gym.spaces.Box(-1.0, 1.0, (4,), np.float32),
        action_space=gym.spaces.Discrete(3),
        inference_only=inference_only,
        model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8], "vf_share_layers": False}
        if kind is not Small
        else {},
    )


def outcome():
    found = {}
    for kind in (Small, DefaultPPOTorchRLModule):
        learns, acts = spec(kind, False).build(), spec(kind, True).build()
        whole, part = learns.get_state(), learns.get_state(inference_only=True)
        acts.set_state(whole)
        batch = {Columns.OBS: torch.linspace(-1, 1, 8).reshape(2, 4)}
        same = [one.forward_inference(batch)[Columns.ACTION_DIST_INPUTS] for one in (learns, acts)]
        refused = ""
        try:
            acts.forward_train(batch)
        except Exception as error:
            refused = type(error).__name__
        found[kind.__name__] = {
            "whole": sorted(whole),
            "part": sorted(part),
            "acts by": sorted(acts.get_state()),
            "same": bool(torch.equal(*same)),
            "forward_train": refused,
        }
        acts.set_state(part)
    return {"equal": found, "called": CALLS}
