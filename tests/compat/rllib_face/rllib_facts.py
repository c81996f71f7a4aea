"""Prints what RLlib itself says, as JSON: run by an interpreter that has it. Nothing of polyak is imported."""

import dataclasses
import json

import numpy as np
import ray
import torch
from gymnasium import spaces
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.catalog import Catalog
from ray.rllib.core.models.configs import CNNEncoderConfig, MLPEncoderConfig, RecurrentEncoderConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def plain(value):
    """A value as JSON has it; of others the class."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return f"<{getattr(value, '__name__', type(value).__name__)}>"


def settings(config):
    """All settings of a config by their names."""
    found = {name: plain(value) for name, value in vars(config).items()}
    found["train_batch_size_per_learner"] = config.train_batch_size_per_learner
    return {name.lstrip("_") if name in HIDDEN else name: value for name, value in found.items()}


HIDDEN = (
    "_model_config",
    "_rl_module_spec",
    "_learner_class",
    "_is_atari",
    "_env_to_module_connector",
    "_module_to_env_connector",
    "_learner_connector",
)
facts = {"ray": ray.__version__}
CONFIGS = PPOConfig, DQNConfig, SACConfig, IMPALAConfig, APPOConfig, BCConfig, MARWILConfig, CQLConfig
for config in (made() for made in CONFIGS):
    name = type(config).__name__.removesuffix("Config")
    facts[name] = settings(config)
facts["own_model_options"] = plain(PPOConfig()._model_config_auto_includes)
facts["model"] = plain(dataclasses.asdict(DefaultModelConfig()))
facts["columns"] = {name: value for name, value in vars(Columns).items() if name.isupper()}
facts["fragments"] = [DQNConfig().training(n_step=n).get_rollout_fragment_length() for n in (1, 3, (2, 5))]
facts["batches"] = [
    PPOConfig().env_runners(num_env_runners=0, num_envs_per_env_runner=n).get_rollout_fragment_length() for n in (1, 4)
]

pictures = {}
for size, filters in (
    (84, [[16, [8, 8], 4], [32, [4, 4], 2]]),
    (84, [[32, [8, 8], 4], [64, [4, 4], 2], [64, [3, 3], 1]]),
    (64, [[16, [4, 4], 2], [32, [4, 4], 2, "valid"]]),
    (11, [[3, [5, 5], 3]]),
):
    config = CNNEncoderConfig(input_dims=[size, size, 3], cnn_filter_specifiers=filters)
    encoder = config.build(framework="torch")
    rng = np.random.default_rng(0)
    weights = {k: rng.standard_normal(v.shape).astype(np.float32) * 0.1 for k, v in encoder.state_dict().items()}
    encoder.load_state_dict({k: torch.as_tensor(v) for k, v in weights.items()})
    image = torch.as_tensor(rng.standard_normal((1, size, size, 3)).astype(np.float32))
    out = encoder({"obs": image})["encoder_out"][0]
    pictures[json.dumps([size, filters])] = [len(out), out[:: max(len(out) // 50, 1)].tolist()]
facts["pictures"] = pictures

mlp = MLPEncoderConfig(input_dims=[3], hidden_layer_dims=[8, 8], output_layer_dim=4, output_layer_activation="tanh")
facts["mlp"] = [list(v.shape) for v in mlp.build(framework="torch").state_dict().values()]
lstm = RecurrentEncoderConfig(
    input_dims=[3], recurrent_layer_type="lstm", hidden_dim=5, num_layers=1, tokenizer_config=mlp
)
facts["lstm"] = {k: list(v.shape) for k, v in lstm.build(framework="torch").get_initial_state().items()}
catalog = Catalog(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), {})
kind = catalog.get_action_dist_cls(framework="torch")
facts["gaussian"] = kind.required_input_dim(space=spaces.Box(-1, 1, (2,)))
logits = torch.tensor([[0.1, -0.2, 0.3, 0.4]])
facts["logp"] = kind.from_logits(logits).logp(torch.tensor([[0.5, 0.5]])).tolist()
print(json.dumps(facts))
