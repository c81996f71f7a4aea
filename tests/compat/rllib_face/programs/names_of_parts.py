"""Parts of default modules by the names that programs reach them by."""

import gymnasium as gym
import numpy as np
from games import Calls
from ray.rllib.algorithms.bc.bc_catalog import BCCatalog
from ray.rllib.algorithms.bc.torch.default_bc_torch_rl_module import DefaultBCTorchRLModule
from ray.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

CALLS = Calls()


def outcome():
    CALLS.note("outcome")
    found = {}
    pixels = gym.spaces.Box(0.0, 1.0, (10, 10, 3), np.float32)
    vector = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    dqn = {"num_atoms": 1, "dueling": True, "double_q": True, "epsilon": 0.1}
    for name, kind, catalog, space, options in (
        ("apart", DefaultPPOTorchRLModule, PPOCatalog, vector, {"vf_share_layers": False}),
        ("shared", DefaultPPOTorchRLModule, PPOCatalog, vector, {"vf_share_layers": True}),
        ("pixels", DefaultPPOTorchRLModule, PPOCatalog, pixels, {"vf_share_layers": True}),
        ("memory", DefaultPPOTorchRLModule, PPOCatalog, vector, {"vf_share_layers": True, "use_lstm": True}),
        ("values", DefaultDQNTorchRLModule, DQNCatalog, vector, dqn),
        ("cloned", DefaultBCTorchRLModule, BCCatalog, vector, {}),
    ):
        module = RLModuleSpec(
            module_class=kind,
            observation_space=space,
            action_space=gym.spaces.Discrete(3),
            model_config={"fcnet_hiddens": [8, 6], "head_fcnet_hiddens": [5], "lstm_cell_size": 7, **options},
            catalog_class=catalog,
        ).build()
        if kind is DefaultDQNTorchRLModule:
            module.make_target_networks()
            pairs = module.get_target_network_pairs()
            found["pairs"] = [
                [own is getattr(module, part), copy is getattr(module, f"_target_{part}")]
                for part, (own, copy) in zip(("encoder", "af", "vf"), pairs, strict=True)
            ]
        found[name] = {
            "children": sorted(child for child, _ in module.named_children()),
            "state": {key: list(value.shape) for key, value in module.get_state().items()},
            "learned": sorted(key for key, value in module.named_parameters() if value.requires_grad),
        }
    return {"equal": found, "called": CALLS}
