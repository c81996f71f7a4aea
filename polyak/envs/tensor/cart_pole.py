"""A pole on a cart (Barto, Sutton and Anderson 1983), with the constants of Gymnasium's CartPole-v1."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.tensor.tensor_env import TensorEnv

GRAVITY, FORCE, STEP = 9.8, 10.0, 0.02
"""m/s^2, N, s"""
MASS, POLE_MASS, HALF_LENGTH = 1.1, 0.1, 0.5
"""Mass of cart and pole together, and of the pole (kg); half of the pole's length (m)."""
FARTHEST, STEEPEST = 2.4, math.radians(12)
"""Limits of the cart's position (m) and the pole's angle (rad), beyond which the episode ends."""


class TensorCartPole(TensorEnv):
    """Keep the pole upright by pushing the cart left (0) or right (1): a reward of 1 for each step.

    States, and observations, are position, velocity, angle and angular velocity, in float32.
    """

    observation_space = spaces.Box(
        -np.array([2 * FARTHEST, np.inf, 2 * STEEPEST, np.inf], np.float32),
        np.array([2 * FARTHEST, np.inf, 2 * STEEPEST, np.inf], np.float32),
    )
    action_space = spaces.Discrete(2)
    max_episode_steps = 500

    def begin(self, n: int) -> Tensor:
        return torch.rand(n, 4, generator=self.random, device=self.device) * 0.1 - 0.05

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, speed, angle, spin = state.unbind(1)
        sine, cosine = angle.sin(), angle.cos()
        force = (2 * actions - 1) * FORCE
        push = (force + POLE_MASS * HALF_LENGTH * spin.square() * sine) / MASS
        inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cosine.square() / MASS)
        spin_up = (GRAVITY * sine - cosine * push) / inertia
        speed_up = push - POLE_MASS * HALF_LENGTH * spin_up * cosine / MASS
        moved = torch.stack(
            [position + STEP * speed, speed + STEP * speed_up, angle + STEP * spin, spin + STEP * spin_up], 1
        )
        terminal = (moved[:, 0].abs() > FARTHEST) | (moved[:, 2].abs() > STEEPEST)
        return moved, torch.ones_like(position), terminal
