"""A network of your own, which splits what it makes of an observation into an even and an odd part."""

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak import DQN, evaluate
from polyak.nn import BaseFeaturesExtractor


class Mirrored(BaseFeaturesExtractor):
    """[B, D] observations -> [B, features_dim]: even and odd parts of what one layer makes of x and of -x."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        self.net = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim // 2), nn.Tanh())

    def forward(self, observations: Tensor) -> Tensor:
        here, mirrored = self.net(observations), self.net(-observations)
        return torch.cat([here + mirrored, here - mirrored], dim=1)


def main(steps: int = 20_000) -> float:
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        exploration_fraction=0.2,
        target_update_interval=500,
        policy_kwargs={
            "features_extractor_class": Mirrored,
            "features_extractor_kwargs": {"features_dim": 64},
            "net_arch": [64],
        },
        seed=0,
    ).learn(steps)
    result = evaluate(model, "CartPole-v1", n_episodes=20, seed=1)
    print(f"mean return {result.mean:.1f}")
    return result.mean


if __name__ == "__main__":
    main()
