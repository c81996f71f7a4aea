"""A pendulum to be swung up, with the constants of Gymnasium's Pendulum-v1."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.tensor.tensor_env import TensorEnv

GRAVITY, STEP = 10.0, 0.05
"""m/s^2, s; mass and length of the pendulum are 1."""
STRONGEST, FASTEST = 2.0, 8.0
"""Torque, and angular speed (rad/s)."""


class TensorPendulum(TensorEnv):
    """Swing the pendulum up and hold it: rewards are minus the squares of angle, speed and torque, weighted.

    States are the angle (0: upright) and its speed, in float32; cosine, sine and speed are seen. No state is terminal.
    """

    observation_space = spaces.Box(
        -np.array([1, 1, FASTEST], np.float32), np.array([1, 1, FASTEST], np.float32), dtype=np.float32
    )
    action_space = spaces.Box(-STRONGEST, STRONGEST, (1,), np.float32)
    max_episode_steps = 200

    def begin(self, n: int) -> Tensor:
        drawn = 2 * torch.rand(n, 2, generator=self.random, device=self.device) - 1
        return torch.stack([math.pi * drawn[:, 0], drawn[:, 1]], 1)

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, spin = state.unbind(1)
        torque = actions[:, 0].clamp(-STRONGEST, STRONGEST)
        tilt = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        rewards = -(tilt.square() + 0.1 * spin.square() + 0.001 * torque.square())
        spin = (spin + STEP * (1.5 * GRAVITY * angle.sin() + 3 * torque)).clamp(-FASTEST, FASTEST)
        return torch.stack([angle + STEP * spin, spin], 1), rewards, torch.zeros_like(spin, dtype=torch.bool)

    def observe(self, state: Tensor) -> Tensor:
        return torch.stack([state[:, 0].cos(), state[:, 0].sin(), state[:, 1]], 1)
