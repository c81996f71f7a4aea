"""A config that says itself which module and catalog it trains."""

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import nn

CALLS = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


class NarrowCatalog(PPOCatalog):
    def build_vf_head(self, framework):
        count("build_vf_head")
        return nn.Sequential(nn.Linear(self.latent_dims[0], 3), nn.Tanh(), nn.Linear(3, 1))


class NamedModule(PPOTorchRLModule):
    def setup(self):
        count("setup")
        super().setup()
        self.extra = nn.Parameter(torch.zeros(7))


class NarrowPPOConfig(PPOConfig):
    def get_default_rl_module_spec(self):
        count("get_default_rl_module_spec")
        return RLModuleSpec(
            module_class=NamedModule, catalog_class=NarrowCatalog, model_config={"fcnet_hiddens": [6, 5]}
        )

    @property
    def _model_config_auto_includes(self):
        count("_model_config_auto_includes")
        return super()._model_config_auto_includes | {"fcnet_activation": "relu"}


def outcome():
    config = NarrowPPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    algo = config.build_algo()
    algo.train()
    module = algo.learner_group._learner.module["default_policy"].unwrapped()
    found = {
        "class": type(module).__name__,
        "catalog": type(module.catalog).__name__,
        "value head": [type(layer).__name__ for layer in module.vf],
        "extra": list(module.extra.shape),
        "latent_dims": list(module.catalog.latent_dims),
        "activation": module.model_config["fcnet_activation"],
        "vf_share_layers": module.model_config["vf_share_layers"],
    }
    algo.stop()
    return {"equal": found, "called": CALLS}
