"""Small data and minibatches that tests of algorithms with continuous or discrete actions share."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.experience import Dataset, Transition


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in each test of a module that imports it."""
    torch.manual_seed(0)


def some_data(width: int = 2, rows: int = 60, low: float = -2, high: float = 3, choices: int | None = None) -> Dataset:
    """Episodes of 20 steps of noise, with actions of so many numbers, or one of some choices."""
    rng = np.random.RandomState(0)
    observations, then = (rng.randn(rows, 3).astype(np.float32) for _ in range(2))
    moves = (
        rng.uniform(low, high, (rows, width)).astype(np.float32) if choices is None else rng.randint(0, choices, rows)
    )
    return Dataset(
        observations=observations,
        next_observations=then,
        actions=moves,
        rewards=rng.randn(rows),
        terminations=np.arange(1, rows + 1) % 20 == 0,
        action_space=None if choices is None else spaces.Discrete(choices),
    )


def some_batch(
    rows: int = 16, width: int = 1, weights: Tensor | None = None, choices: int | None = None, **extras: Tensor
) -> Transition:
    """Rows of noise, as :func:`some_data` has them."""
    return Transition(
        observations=torch.randn(rows, 3),
        actions=torch.rand(rows, width) * 2 - 1 if choices is None else torch.randint(0, choices, (rows, 1)),
        rewards=torch.randn(rows),
        next_observations=torch.randn(rows, 3),
        discounts=torch.full((rows,), 0.9),
        weights=torch.ones(rows) if weights is None else weights,
        extras=extras,
    )


def parts(ours: Any) -> dict[str, Tensor]:
    """The parameters of actor, critics and targets, each as one vector, and the logarithm of the temperature."""
    networks = {"actor": ours.actor, "critic": ours.critic, "critic_target": ours.critic_target}
    found = {name: nn.utils.parameters_to_vector(n.parameters()).detach().clone() for name, n in networks.items()}
    return {**found, "log_ent_coef": ours.log_ent_coef.detach().clone()}
