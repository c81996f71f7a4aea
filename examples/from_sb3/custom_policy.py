"""Other networks: sizes and activations by policy_kwargs, and a policy class with networks of its own."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn


class TwoTowers(nn.Module):
    """A network for the policy and one for the value, of different depth.

    Args:
        feature_dim: number of features that both read.
        last_layer_dim_pi, last_layer_dim_vf: width of their outputs.
    """

    def __init__(self, feature_dim: int, last_layer_dim_pi: int = 64, last_layer_dim_vf: int = 32) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = last_layer_dim_pi, last_layer_dim_vf
        self.policy_net = nn.Sequential(nn.Linear(feature_dim, last_layer_dim_pi), nn.ReLU())
        self.value_net = nn.Sequential(
            nn.Linear(feature_dim, 48), nn.SiLU(), nn.Linear(48, last_layer_dim_vf), nn.SiLU()
        )

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the policy's head and the value's head read."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """For the policy alone."""
        return self.policy_net(features)

    def forward_critic(self, features: Tensor) -> Tensor:
        """For the value alone."""
        return self.value_net(features)


class TowerPolicy(ActorCriticPolicy):
    """The usual policy, on :class:`TwoTowers`."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Callable[[float], float],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        kwargs["ortho_init"] = False
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = TwoTowers(self.features_dim)


def size(model: Any) -> int:
    """Number of trained numbers."""
    return sum(parameter.numel() for parameter in model.policy.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    make = partial(dict, seed=0, device="cpu")

    kwargs = {"activation_fn": nn.ReLU, "net_arch": {"pi": [32, 32], "vf": [64]}}
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, policy_kwargs=kwargs, **make()).learn(options.steps)
    print("PPO:", size(model), "parameters")
    print(model.policy)

    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [32, 32]}, **make()).learn(options.steps)
    print("DQN:", size(model))
    for cls in (SAC, TD3):  # the actor's and the critics' layers
        kwargs = {"net_arch": {"pi": [64, 64], "qf": [100, 75]}, "n_critics": 1}
        model = cls("MlpPolicy", "Pendulum-v1", policy_kwargs=kwargs, **make()).learn(options.steps)
        print(cls.__name__ + ":", size(model), [tuple(p.shape) for p in model.critic.parameters()])

    optimizer = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 1e-2}}
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, policy_kwargs=optimizer, **make()).learn(options.steps)
    print("PPO uses", type(model.policy.optimizer).__name__)

    model = A2C(TowerPolicy, "CartPole-v1", **make()).learn(options.steps)
    print("own networks:", sorted(name for name, _ in model.policy.named_parameters() if "mlp_extractor" in name))


if __name__ == "__main__":
    main()
