"""N environments whose states are one tensor on a device.

Where an episode ends, ``torch.where`` begins the next one: the sequence of operations never depends on a value, so the
host reads none and never waits for the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.protocol import First, Outcome
from polyak.envs.sizes import MOST_TENSOR_ENVS, check_size


class TensorEnv(ABC):
    """N environments of the same kind, whose states are a tensor [N, S].

    A subclass defines its spaces and time limit, how episodes begin, how states advance and how they are observed. It
    uses tensors alone and reads no value of theirs (no ``.item()``, no ``if`` on a tensor).

    Args:
        num_envs: N, at least 1.
        seed: seed of the random first states.
        device: device of the tensors.

    Raises:
        ValueError: ``num_envs`` is below 1 or too large.
    """

    observation_space: spaces.Space[Any]
    """The observation space of one environment."""
    action_space: spaces.Space[Any]
    """The action space of one environment: a Box, whose actions are [N, ...] of its dtype, or a Discrete, [N] int64."""
    max_episode_steps: int
    """Steps after which an episode is truncated."""
    masked = False
    resets = 0

    def __init__(self, num_envs: int, seed: int = 0, device: torch.device | str = "cpu") -> None:
        check_size("num_envs", num_envs, MOST_TENSOR_ENVS)
        self.num_envs, self.device = num_envs, torch.device(device)
        self.random = torch.Generator(self.device)
        self.random.manual_seed(seed)
        self.state = self.begin(num_envs)
        self.elapsed = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.num_envs} environments on {self.device}>"

    @abstractmethod
    def begin(self, n: int) -> Tensor:
        """States that n episodes begin in [n, S], drawn from :attr:`random`."""

    @abstractmethod
    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States [N, S], actions [N, ...] -> next states [N, S], rewards [N], terminal or not [N] bool."""

    def observe(self, state: Tensor) -> Tensor:
        """States [N, S] -> observations [N, ...]; here the states themselves."""
        return state

    def seed(self, seed: int) -> None:
        """Draw from another stream of random numbers from now on."""
        self.random.manual_seed(seed)

    def reset(self) -> First:
        """Begin new episodes everywhere."""
        self.resets += 1
        self.state = self.begin(self.num_envs)
        self.elapsed = torch.zeros_like(self.elapsed)
        return First(self.observe(self.state))

    def step(self, actions: Tensor) -> Outcome:
        """Step each environment with its action; where an episode ends, the next one begins.

        All columns are new tensors: a later step alters none of them.
        """
        state, rewards, terminated = self.advance(self.state, actions)
        elapsed = self.elapsed + 1
        truncated = (elapsed >= self.max_episode_steps) & ~terminated
        ended = terminated | truncated
        self.state = torch.where(ended[:, None], self.begin(self.num_envs), state)
        self.elapsed = torch.where(ended, 0, elapsed)
        return Outcome(self.observe(state), rewards, terminated, truncated, self.observe(self.state), ended)

    def get_state(self) -> dict[str, Tensor]:
        """Returns states, elapsed steps of the episodes, and the state of the random generator."""
        return {"state": self.state.clone(), "elapsed": self.elapsed.clone(), "random": self.random.get_state()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restores a state that :meth:`get_state` returned.

        Raises:
            ValueError: the state has other shapes.
        """
        shapes = {name: tuple(state[name].shape) for name in ("state", "elapsed")}
        own = {"state": tuple(self.state.shape), "elapsed": tuple(self.elapsed.shape)}
        if shapes != own:
            raise ValueError(f"state must have tensors of the shapes {own}, as {self!r} has, got {shapes}.")
        self.state = state["state"].to(self.device, copy=True)
        self.elapsed = state["elapsed"].to(self.device, copy=True)
        self.random.set_state(state["random"].cpu())
