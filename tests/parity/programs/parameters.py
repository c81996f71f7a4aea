"""Names, shapes and first values of parameters."""

from typing import Any

import numpy as np
import torch
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.torch_layers import NatureCNN, create_mlp
from torch import nn

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


def _cases() -> dict[str, Any]:
    """Models of every algorithm with the options that change their networks."""
    box, small = worlds.Counting(action_space=BOX), {"buffer_size": 10, "device": "cpu", "seed": 3}
    fixed: dict[str, Any] = {"device": "cpu", "seed": 3}
    several_box = worlds.Several(BOX)
    return {
        "A2C": A2C("MlpPolicy", worlds.Counting(), **fixed),
        "A2C box": A2C("MlpPolicy", box, **fixed),
        "A2C tf": A2C("MlpPolicy", box, policy_kwargs={"optimizer_class": RMSpropTFLike}, **fixed),
        "PPO": PPO("MlpPolicy", worlds.Counting(), **fixed),
        "PPO box": PPO("MlpPolicy", box, **fixed),
        "PPO arch": PPO("MlpPolicy", box, policy_kwargs={"net_arch": {"pi": [8], "vf": [9, 10]}}, **fixed),
        "PPO list": PPO("MlpPolicy", box, policy_kwargs={"net_arch": [7, 6], "activation_fn": nn.ReLU}, **fixed),
        "PPO none": PPO("MlpPolicy", box, policy_kwargs={"net_arch": [], "ortho_init": False}, **fixed),
        "PPO gsde": PPO("MlpPolicy", box, use_sde=True, **fixed),
        "PPO gsde half": PPO("MlpPolicy", box, use_sde=True, policy_kwargs={"full_std": False}, **fixed),
        "PPO apart": PPO("MlpPolicy", box, policy_kwargs={"share_features_extractor": False}, **fixed),
        "PPO cnn": PPO("CnnPolicy", worlds.Pictures(), **fixed),
        "PPO cnn apart": PPO(
            "CnnPolicy", worlds.Pictures(), policy_kwargs={"share_features_extractor": False}, **fixed
        ),
        "PPO dict": PPO("MultiInputPolicy", worlds.Several(), **fixed),
        "PPO several": PPO("MlpPolicy", worlds.Counting(action_space=spaces.MultiDiscrete([2, 3])), **fixed),
        "PPO switches": PPO("MlpPolicy", worlds.Counting(action_space=spaces.MultiBinary(4)), **fixed),
        "DQN": DQN("MlpPolicy", worlds.Counting(), **small),
        "DQN arch": DQN("MlpPolicy", worlds.Counting(), policy_kwargs={"net_arch": [5]}, **small),
        "DQN cnn": DQN("CnnPolicy", worlds.Pictures(), **small),
        "DQN dict": DQN("MultiInputPolicy", worlds.Several(), **small),
        "SAC": SAC("MlpPolicy", box, **small),
        "SAC fixed": SAC("MlpPolicy", box, ent_coef=0.1, **small),
        "SAC gsde": SAC("MlpPolicy", box, use_sde=True, **small),
        "SAC arch": SAC("MlpPolicy", box, policy_kwargs={"net_arch": {"pi": [8], "qf": [9]}, "n_critics": 3}, **small),
        "SAC dict": SAC("MultiInputPolicy", several_box, **small),
        "SAC dict shared": SAC(
            "MultiInputPolicy", several_box, policy_kwargs={"share_features_extractor": True}, **small
        ),
        "TD3": TD3("MlpPolicy", box, **small),
        "TD3 arch": TD3("MlpPolicy", box, policy_kwargs={"net_arch": [8, 9]}, **small),
        "TD3 dict": TD3("MultiInputPolicy", several_box, **small),
        "DDPG": DDPG("MlpPolicy", box, **small),
    }


def names_and_shapes() -> Any:
    """State dicts: keys in order, and shapes."""
    return {
        name: {key: "x".join(map(str, tensor.shape)) for key, tensor in model.policy.state_dict().items()}
        for name, model in _cases().items()
    }


def order_of_names() -> Any:
    """The order of parameters, which is that of optimizers' states."""
    return {
        name: [key for key, _ in model.policy.named_parameters()]
        for name, model in _cases().items()
        if name in ("A2C box", "PPO cnn", "DQN", "SAC", "SAC dict shared", "TD3", "PPO gsde")
    }


def first_weights() -> Any:
    """Initial weights with a seed: their sizes added up, and by how much positive ones outweigh the others."""
    found = {}
    for name, model in _cases().items():
        found[name] = {}
        for key, tensor in model.policy.state_dict().items():
            size = float(tensor.double().abs().sum())
            found[name][key] = [float(tensor.double().sum()) / size if size else 0.0, size]
    return found


def get_parameters() -> Any:
    """Keys of get_parameters, and sizes of the optimizers."""
    found = {}
    for name, model in _cases().items():
        if " " in name and name not in ("SAC fixed", "A2C tf"):
            continue
        parameters = model.get_parameters()
        found[name] = {key: type(value).__name__ for key, value in parameters.items()}
        for key, value in parameters.items():
            if isinstance(value, dict):
                found[name][f"{key}, size"] = len(value["param_groups"][0]["params"] if "state" in value else value)
    return found


def optimizers() -> Any:
    """Class and settings of the optimizers."""
    found = {}
    for name, model in _cases().items():
        if " " in name and name != "A2C tf":
            continue
        for where in ("policy", "actor", "critic"):
            owner = model.policy if where == "policy" else getattr(model.policy, where, None)
            optimizer = getattr(owner, "optimizer", None)
            if optimizer is not None:
                group = optimizer.param_groups[0]
                settings = {key: group[key] for key in ("eps", "alpha", "betas", "weight_decay") if key in group}
                found[f"{name} {where}"] = [type(optimizer).__name__, float(group["lr"]), settings]
    return found


def set_parameters(folder: Any) -> Any:
    """From a dict and from a file, whole and in part."""
    one, two = (PPO("MlpPolicy", worlds.Counting(), device="cpu", seed=seed) for seed in (0, 1))
    two.set_parameters(one.get_parameters())
    same = _equal(one, two)
    one.learn(2048)
    one.save(folder / "one")
    two.set_parameters(str(folder / "one"), device="cpu")
    part = {"policy": one.policy.state_dict()}
    three = PPO("MlpPolicy", worlds.Counting(), device="cpu", seed=2)
    three.set_parameters(part, exact_match=False)
    return [same, _equal(one, two), _equal(one, three)]


def _equal(one: Any, two: Any) -> bool:
    a, b = one.policy.state_dict(), two.policy.state_dict()
    return all(torch.equal(a[key], b[key]) for key in a)


def layers() -> Any:
    """create_mlp and the features of NatureCNN."""

    def names(modules: list[Any]) -> list[str]:
        return [type(module).__name__ for module in modules]

    cnn = NatureCNN(spaces.Box(0, 255, (2, 36, 36), np.uint8), features_dim=33)
    return {
        "mlp": names(create_mlp(3, 2, [4, 5])),
        "squashed": names(create_mlp(3, 2, [4], nn.Tanh, squash_output=True)),
        "headless": names(create_mlp(3, -1, [4])),
        "no bias": [module.bias is None for module in create_mlp(3, 2, [4], with_bias=False)[::2]],
        "cnn": [cnn.features_dim, {key: list(value.shape) for key, value in cnn.state_dict().items()}],
    }


def modules() -> Any:
    """Attributes of policies that programs reach into."""
    cases = _cases()
    ppo, sac, dqn = cases["PPO box"].policy, cases["SAC"].policy, cases["DQN"].policy
    return {
        "ppo": [
            type(getattr(ppo, name)).__name__
            for name in ("action_net", "value_net", "mlp_extractor", "features_extractor")
        ],
        "latent": [ppo.mlp_extractor.latent_dim_pi, ppo.mlp_extractor.latent_dim_vf, ppo.features_dim],
        "log_std": list(ppo.log_std.shape),
        "dist": type(ppo.action_dist).__name__,
        "sac": [type(getattr(sac.actor, name)).__name__ for name in ("latent_pi", "mu", "log_std")],
        "critics": [len(sac.critic.q_networks), sac.critic.n_critics],
        "dqn": [type(dqn.q_net.q_net).__name__, type(dqn.q_net.features_extractor).__name__],
        "training": [ppo.training, sac.critic_target.training, dqn.q_net_target.training],
    }
