"""Tasks solved by repeating the observation, and one that only looks like an image task."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.sizes import check_size
from polyak.envs.spaces import SpaceError

T = TypeVar("T", int, np.ndarray)


class IdentityEnv(gym.Env, Generic[T]):
    """Reward 1 for an action equal to the observation, else 0; the state is drawn at each step.

    Args:
        dim: number of values of a Discrete space; None for 1.
        space: the space of states and actions, in place of ``dim``.
        ep_length: steps until truncation.

    Raises:
        SpaceError: when both ``dim`` and ``space`` are given.
        ValueError: when ``ep_length`` is below 1.
    """

    state: T

    def __init__(self, dim: int | None = None, space: spaces.Space | None = None, ep_length: int = 100):
        if dim is not None and space is not None:
            raise SpaceError(f"Give dim or space, not both: got dim={dim} and space={space}.")
        check_size("ep_length", ep_length)
        if space is None:
            space = spaces.Discrete(1 if dim is None else dim)
        # Two objects: drawing actions must not change which states come.
        self.observation_space, self.action_space = space, copy.deepcopy(space)
        self.ep_length = ep_length
        self.current_step = 0
        self.num_resets = -1  # the reset below is not counted
        self.reset()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[T, dict[str, Any]]:
        """Draw a state; a seed also makes all later ones the same again."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.current_step = 0
        self.num_resets += 1
        self._choose_next_state()
        return self.state, {}

    def step(self, action: T) -> tuple[T, float, bool, bool, dict[str, Any]]:
        """Reward the action, draw the next state; never terminates, truncates after ``ep_length`` steps."""
        reward = self._get_reward(action)
        self._choose_next_state()
        self.current_step += 1
        return self.state, reward, False, self.current_step >= self.ep_length, {}

    def _choose_next_state(self) -> None:
        self.state = self.observation_space.sample()

    def _get_reward(self, action: T) -> float:
        return 1.0 if np.all(self.state == action) else 0.0

    def render(self, mode: str = "human") -> None:
        """Print the state, which is also the right action."""
        print(f"state: {self.state}")


class IdentityEnvBox(IdentityEnv[np.ndarray]):
    """IdentityEnv with one number in a Box; an action within ``eps`` of it is right.

    Args:
        low: lower bound.
        high: upper bound.
        eps: tolerance.
        ep_length: steps until truncation.
    """

    def __init__(self, low: float = -1.0, high: float = 1.0, eps: float = 0.05, ep_length: int = 100):
        self.eps = eps
        super().__init__(space=spaces.Box(low, high, shape=(1,), dtype=np.float32), ep_length=ep_length)

    def _get_reward(self, action: np.ndarray) -> float:
        return 1.0 if np.all(np.abs(self.state - action) <= self.eps) else 0.0


class IdentityEnvMultiDiscrete(IdentityEnv[np.ndarray]):
    """IdentityEnv with two values of ``dim`` each.

    Args:
        dim: number of values of each.
        ep_length: steps until truncation.
    """

    def __init__(self, dim: int = 1, ep_length: int = 100):
        super().__init__(space=spaces.MultiDiscrete([dim, dim]), ep_length=ep_length)


class IdentityEnvMultiBinary(IdentityEnv[np.ndarray]):
    """IdentityEnv with ``dim`` bits.

    Args:
        dim: number of bits.
        ep_length: steps until truncation.
    """

    def __init__(self, dim: int = 1, ep_length: int = 100):
        super().__init__(space=spaces.MultiBinary(dim), ep_length=ep_length)


class FakeImageEnv(gym.Env):
    """Random images and no reward, with the spaces of an Atari game; episodes of 10 steps.

    Args:
        action_dim: number of discrete actions.
        screen_height: height of the image.
        screen_width: width of the image.
        n_channels: number of channels of the image.
        discrete: Discrete actions; false for a Box of 5 numbers in [-1, 1].
        channel_first: ``(C, H, W)`` instead of ``(H, W, C)``.
    """

    def __init__(
        self,
        action_dim: int = 6,
        screen_height: int = 84,
        screen_width: int = 84,
        n_channels: int = 1,
        discrete: bool = True,
        channel_first: bool = False,
    ):
        self.observation_shape = (
            (n_channels, screen_height, screen_width) if channel_first else (screen_height, screen_width, n_channels)
        )
        self.observation_space = spaces.Box(0, 255, shape=self.observation_shape, dtype=np.uint8)
        self.action_space = (
            spaces.Discrete(action_dim) if discrete else spaces.Box(-1.0, 1.0, shape=(5,), dtype=np.float32)
        )
        self.ep_length = 10
        self.current_step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; a seed makes its images the same again."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.current_step = 0
        return self.observation_space.sample(), {}

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return a random image and reward 0; truncates after 10 steps."""
        self.current_step += 1
        return self.observation_space.sample(), 0.0, False, self.current_step >= self.ep_length, {}

    def render(self, mode: str = "human") -> None:
        """Print the step number: there is nothing else to see."""
        print(f"step {self.current_step} of {self.ep_length}")
