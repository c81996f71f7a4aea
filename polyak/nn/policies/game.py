"""A policy that evaluates positions of games: prior probabilities of moves, and the value of the position.

Shape letters: B batch, A moves, F features.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.discrete import exponential
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import BaseFeaturesExtractor, Obs
from polyak.nn.networks.layers import check_widths, create_mlp
from polyak.nn.policies.base import Decision, LayeredPolicy, Noise, State, n_rows


class BoardTower(BaseFeaturesExtractor):
    """Residual convolutions over a board, without pooling: planes [B, C, H, W] -> [B, features_dim].

    The tower of AlphaZero (Silver et al. 2018, "Network architecture"), with group instead of batch normalisation, so
    that the evaluation of a position depends on that position alone, in a search as in a gradient step.

    Args:
        observation_space: planes.
        channels: of every convolution, a multiple of 8.
        blocks: residual blocks of two convolutions.

    Raises:
        PolicyError: not planes, or other numbers of channels or blocks.
    """

    def __init__(self, observation_space: spaces.Box, channels: int = 32, blocks: int = 3) -> None:
        if len(observation_space.shape) != 3:
            raise PolicyError(f"BoardTower reads planes [C, H, W], got {observation_space}. Use 'MlpPolicy'.")
        if channels < 8 or channels % 8 or blocks < 0:
            raise PolicyError(f"channels={channels} must be a multiple of 8, and blocks={blocks} at least 0.")
        planes, height, width = observation_space.shape
        super().__init__(observation_space, 4 * height * width)
        self.first = nn.Sequential(nn.Conv2d(planes, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.ReLU())
        self.blocks = nn.ModuleList(_Block(channels) for _ in range(blocks))
        self.last = nn.Sequential(nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Flatten())

    def forward(self, observations: Tensor) -> Tensor:
        x = self.first(observations)
        for block in self.blocks:
            x = block(x)
        features: Tensor = self.last(x)
        return features


class BoardWindows(BaseFeaturesExtractor):
    """One convolution over every window of a board: planes [B, C, H, W] -> [B, features_dim].

    It finds patterns of a few fields anywhere on the board, in an eighth of the time of a tower: windows of four by
    four hold all lines of four.

    Args:
        observation_space: planes.
        channels: number of patterns.
        window: fields along each side.

    Raises:
        PolicyError: not planes, no channels, or a window that is larger than the board.
    """

    def __init__(self, observation_space: spaces.Box, channels: int = 64, window: int = 4) -> None:
        if len(observation_space.shape) != 3:
            raise PolicyError(f"BoardWindows reads planes [C, H, W], got {observation_space}. Use 'MlpPolicy'.")
        planes, height, width = observation_space.shape
        if channels < 1 or not 1 <= window <= min(height, width):
            raise PolicyError(
                f"channels={channels} must be at least 1, and window={window} from 1 to {min(height, width)}, the "
                "board's shorter side."
            )
        super().__init__(observation_space, channels * (height - window + 1) * (width - window + 1))
        self.patterns = nn.Sequential(nn.Conv2d(planes, channels, window), nn.ReLU(), nn.Flatten())

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.patterns(observations)
        return features


class _Block(nn.Module):
    """x + two convolutions of it. [B, C, H, W] -> [B, C, H, W]"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm_one, self.norm_two = (nn.GroupNorm(8, channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm_one(self.one(x)).relu()
        return (x + self.norm_two(self.two(inner))).relu()


class GamePolicy(LayeredPolicy):
    """One trunk, two heads: logits of moves, and a value in [-1, 1] to the player to move.

    Args:
        observation_space: the game's observations.
        action_space: the game's moves.
        tower: convolutions read the board first, see :class:`BoardTower`, whose arguments are
            ``features_extractor_kwargs``.
        **options: see :class:`~polyak.nn.policies.base.LayeredPolicy`.
    """

    supports_masks = True

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Discrete, *, tower: bool = False, **options: Any
    ) -> None:
        if tower:
            options["features_extractor_class"] = BoardTower
        super().__init__(observation_space, action_space, **options)
        self.net_arch = check_widths(self.net_arch, "net_arch")
        self.features_extractor = self.make_features_extractor()
        features = self.features_extractor.features_dim
        self.trunk = nn.Sequential(*create_mlp(features, 0, self.net_arch, self.activation_fn))
        width = self.net_arch[-1] if self.net_arch else features
        self.action_net = nn.Linear(width, int(action_space.n))
        self.value_net = nn.Linear(width, 1)

    def evaluate(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Observations [B, ...] -> logits of all moves [B, A], legal or not, and values [B] in (-1, 1)."""
        latent = self.trunk(self.extract_features(obs, self.features_extractor))
        return self.action_net(latent), self.value_net(latent).squeeze(1).tanh()

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return self.decide(obs, self._noise(n_rows(obs), deterministic)).actions

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return {"actions": exponential(batch, self.action_net.out_features, self.device, generator)}

    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        """Moves by the network alone, without a search."""
        logits, _ = self.evaluate(obs)
        if masks is not None:
            logits = logits.masked_fill(~masks, -torch.inf)
        if noise is None:
            return Decision(logits.argmax(1))
        return Decision((logits.softmax(1) / noise["actions"]).argmax(1))  # as torch.multinomial draws
