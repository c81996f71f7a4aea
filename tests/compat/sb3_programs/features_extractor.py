"""Networks of your own between the observation and the rest of the policy: for pictures, and for Dict observations."""

import argparse

import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn


class SmallCNN(BaseFeaturesExtractor):
    """Two convolutions and one linear layer.

    Args:
        observation_space: pictures, channels first.
        features_dim: how many features to make.
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        channels = observation_space.shape[0]
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 8, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(8, 16, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            example = torch.as_tensor(observation_space.sample()[None]).float()
            width = self.convolutions(example).shape[1]
        self.linear = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Features of pictures, which come divided by 255."""
        return self.linear(self.convolutions(observations))


class PerKey(BaseFeaturesExtractor):
    """Each entry of a Dict has its own network: pictures are averaged, vectors go through a linear layer.

    Args:
        observation_space: a Dict of Box spaces.
    """

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__(observation_space, features_dim=1)  # set below, once it is known
        networks: dict[str, nn.Module] = {}
        width = 0
        for key, space in observation_space.spaces.items():
            if len(space.shape) == 3:
                networks[key] = nn.Sequential(nn.AvgPool2d(8), nn.Flatten())
                width += space.shape[0] * (space.shape[1] // 8) * (space.shape[2] // 8)
            else:
                networks[key] = nn.Linear(spaces.utils.flatdim(space), 16)
                width += 16
        self.networks = nn.ModuleDict(networks)
        self._features_dim = width

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """The features of all entries, side by side."""
        return torch.cat([network(observations[key]) for key, network in self.networks.items()], dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=128)
    options = parser.parse_args()

    pictures = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=True)
    kwargs = {"features_extractor_class": SmallCNN, "features_extractor_kwargs": {"features_dim": 32}}
    model = PPO("CnnPolicy", pictures, n_steps=64, policy_kwargs=kwargs, device="cpu").learn(options.steps)
    print(type(model.policy.features_extractor).__name__, model.policy.features_extractor.features_dim)

    model = DQN("CnnPolicy", pictures, buffer_size=500, learning_starts=32, policy_kwargs=kwargs, device="cpu").learn(
        options.steps
    )
    print(type(model.q_net.features_extractor).__name__, type(model.q_net_target.features_extractor).__name__)

    several = SimpleMultiObsEnv(random_start=False)
    kwargs = {"features_extractor_class": PerKey, "share_features_extractor": False}
    model = PPO("MultiInputPolicy", several, n_steps=64, policy_kwargs=kwargs, device="cpu").learn(options.steps)
    own = model.policy.pi_features_extractor is not model.policy.vf_features_extractor
    print(type(model.policy.pi_features_extractor).__name__, "of its own for the value:", own)


if __name__ == "__main__":
    main()
