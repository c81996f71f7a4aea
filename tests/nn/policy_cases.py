"""Policies that are built here and in Stable-Baselines3 or sb3-contrib, to compare parameters and outputs."""

from typing import Any

import numpy as np
from gymnasium import spaces

VECTOR = spaces.Box(-1.0, 1.0, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 36, 40), np.uint8)
DICT = spaces.Dict({"disc": spaces.Discrete(3), "img": spaces.Box(0, 255, (1, 36, 36), np.uint8), "vec": VECTOR})
OBSERVATIONS = {
    "vector": VECTOR,
    "image": IMAGE,
    "dict": DICT,
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "multi_binary": spaces.MultiBinary(3),
}
ACTIONS = {
    "box": spaces.Box(np.float32([-2, 0]), np.float32([2, 5]), (2,), np.float32),
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_binary": spaces.MultiBinary(3),
}
SMALL = {"pi": [8], "vf": [6, 7]}
SMALL_Q = {"pi": [8], "qf": [6, 7]}

Case = tuple[str, str, str, str, dict[str, Any]]
CASES: dict[str, Case] = {
    # name: family, policy, observations, actions, policy_kwargs
    "ppo_box": ("ppo", "MlpPolicy", "vector", "box", {}),
    "ppo_discrete": ("ppo", "MlpPolicy", "vector", "discrete", {"ortho_init": False}),
    "ppo_multi_discrete": ("ppo", "MlpPolicy", "multi_discrete", "multi_discrete", {"net_arch": SMALL}),
    "ppo_multi_binary": ("ppo", "MlpPolicy", "multi_binary", "multi_binary", {"net_arch": [9]}),
    "ppo_from_discrete": ("ppo", "MlpPolicy", "discrete", "box", {"net_arch": [], "log_std_init": -1.0}),
    "ppo_relu": ("ppo", "MlpPolicy", "vector", "discrete", {"activation_fn": "ReLU", "net_arch": {"pi": [5]}}),
    "ppo_cnn": ("ppo", "CnnPolicy", "image", "discrete", {}),
    "ppo_cnn_own": ("ppo", "CnnPolicy", "image", "box", {"share_features_extractor": False}),
    "ppo_cnn_small": ("ppo", "CnnPolicy", "image", "box", {"features_extractor_kwargs": {"features_dim": 16}}),
    "ppo_flat_picture": ("ppo", "MlpPolicy", "image", "discrete", {"net_arch": SMALL}),
    "ppo_dict": ("ppo", "MultiInputPolicy", "dict", "box", {"net_arch": SMALL}),
    "sac": ("sac", "MlpPolicy", "vector", "box", {}),
    "sac_arch": ("sac", "MlpPolicy", "vector", "box", {"net_arch": SMALL_Q, "n_critics": 3, "activation_fn": "Tanh"}),
    "sac_linear": ("sac", "MlpPolicy", "vector", "box", {"net_arch": []}),
    "sac_cnn": ("sac", "CnnPolicy", "image", "box", {}),
    "sac_cnn_shared": ("sac", "CnnPolicy", "image", "box", {"share_features_extractor": True}),
    "sac_dict": ("sac", "MultiInputPolicy", "dict", "box", {"net_arch": SMALL_Q}),
    "td3": ("td3", "MlpPolicy", "vector", "box", {}),
    "td3_one": ("td3", "MlpPolicy", "vector", "box", {"n_critics": 1, "net_arch": [7, 6]}),
    "td3_cnn": ("td3", "CnnPolicy", "image", "box", {}),
    "td3_cnn_shared": ("td3", "CnnPolicy", "image", "box", {"share_features_extractor": True}),
    "td3_dict": ("td3", "MultiInputPolicy", "dict", "box", {}),
    "tqc": ("tqc", "MlpPolicy", "vector", "box", {}),
    "tqc_arch": ("tqc", "MlpPolicy", "vector", "box", {"net_arch": SMALL_Q, "n_critics": 3, "n_quantiles": 5}),
    "tqc_cnn_shared": ("tqc", "CnnPolicy", "image", "box", {"share_features_extractor": True}),
    "tqc_dict": ("tqc", "MultiInputPolicy", "dict", "box", {"net_arch": SMALL_Q}),
    "dqn": ("dqn", "MlpPolicy", "vector", "discrete", {}),
    "dqn_linear": ("dqn", "MlpPolicy", "multi_discrete", "discrete", {"net_arch": []}),
    "dqn_cnn": ("dqn", "CnnPolicy", "image", "discrete", {}),
    "dqn_dict": ("dqn", "MultiInputPolicy", "dict", "discrete", {}),
    # gSDE draws noise while it is built, so that later layers start from other numbers: only names and shapes compare
    "ppo_sde": ("ppo", "MlpPolicy", "vector", "box", {"use_sde": True, "net_arch": SMALL}),
    "ppo_sde_squash": (
        "ppo",
        "MlpPolicy",
        "vector",
        "box",
        {"use_sde": True, "squash_output": True, "full_std": False, "use_expln": True, "log_std_init": -2.0},
    ),
    "sac_sde": ("sac", "MlpPolicy", "vector", "box", {"use_sde": True}),
    "tqc_sde": ("tqc", "MlpPolicy", "vector", "box", {"use_sde": True}),
    "sac_sde_free": ("sac", "MlpPolicy", "vector", "box", {"use_sde": True, "clip_mean": 0.0, "use_expln": True}),
}
SEED = 7


def make_observations(space: spaces.Space, batch: int = 3) -> Any:
    """A fixed batch of observations, the same wherever it is made."""
    rng = np.random.RandomState(0)

    def draw(part: spaces.Space) -> np.ndarray:
        if isinstance(part, spaces.Discrete):
            return rng.randint(part.n, size=batch)
        if isinstance(part, spaces.MultiDiscrete):
            return np.stack([rng.randint(n, size=batch) for n in part.nvec], axis=1)
        if isinstance(part, spaces.MultiBinary):
            return rng.randint(2, size=(batch, *part.shape)).astype(np.int8)
        if part.dtype == np.uint8:
            return rng.randint(256, size=(batch, *part.shape)).astype(np.uint8)
        return rng.uniform(-1, 1, (batch, *part.shape)).astype(np.float32)

    if isinstance(space, spaces.Dict):
        return {key: draw(part) for key, part in sorted(space.spaces.items())}
    return draw(space)


def make_actions(space: spaces.Space, batch: int = 3) -> np.ndarray:
    """A fixed batch of actions, as float32 vectors [B, A], or indices [B]."""
    rng = np.random.RandomState(1)
    if isinstance(space, spaces.Discrete):
        return rng.randint(space.n, size=batch)
    if isinstance(space, spaces.MultiDiscrete):
        return np.stack([rng.randint(n, size=batch) for n in space.nvec], axis=1)
    if isinstance(space, spaces.MultiBinary):
        return rng.randint(2, size=(batch, *space.shape)).astype(np.float32)
    return rng.uniform(-1, 1, (batch, *space.shape)).astype(np.float32)


def outputs(policy: Any, family: str, observation_space: spaces.Space, action_space: spaces.Space) -> dict[str, Any]:
    """What a policy answers to fixed observations and actions, by methods that both libraries have."""
    import torch

    policy.set_training_mode(False)
    obs, _ = policy.obs_to_tensor(make_observations(observation_space))
    actions = torch.as_tensor(make_actions(action_space))
    answer: dict[str, Any] = {}
    with torch.no_grad():
        if family == "ppo":
            values, log_prob, entropy = policy.evaluate_actions(obs, actions)
            answer |= {"values": values, "log_prob": log_prob, "predict_values": policy.predict_values(obs)}
            if entropy is not None:
                answer["entropy"] = entropy
        elif family == "dqn":
            answer |= {"q": policy.q_net(obs), "target": policy.q_net_target(obs)}
        elif family == "tqc":
            answer |= {"quantiles": policy.critic(obs, actions), "target": policy.critic_target(obs, actions)}
        else:
            answer |= {f"q{i}": q for i, q in enumerate(policy.critic(obs, actions))}
            answer |= {f"target{i}": q for i, q in enumerate(policy.critic_target(obs, actions))}
            answer["q1"] = policy.critic.q1_forward(obs, actions)
            if family == "td3":
                answer |= {"mu": policy.actor(obs), "mu_target": policy.actor_target(obs)}
    answer = {name: value.numpy().tolist() for name, value in answer.items()}
    answer["predict"] = policy.predict(make_observations(observation_space), deterministic=True)[0].tolist()
    return answer


def summary(policy: Any) -> list[list[Any]]:
    """Name, shape and two sums of every tensor in the state dict, in its order."""
    return [
        [name, list(value.shape), float(value.double().sum()), float(value.double().abs().sum())]
        for name, value in policy.state_dict().items()
    ]
