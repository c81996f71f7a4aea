"""Algorithms with conservative critics on what SAC recorded on its way to swinging up a pendulum (``make learn``)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import polyak
from polyak.evaluation.in_environments import evaluate_policy
from polyak.experience import collect

from .recorded import pendulum

UPDATES = 20_000
WANTED = -250.0
"""Mean return. A random policy has some -1200, the recording's mean is far below this, SAC ends at some -150."""
SMALL: dict[str, Any] = {"batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}, "device": "cpu"}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "CQL": {"n_action_samples": 4, "conservative_weight": 1.0, "learning_rate": 1e-3},
    "EDAC": {"n_critics": 5, "learning_rate": 1e-3},
    "ReBRAC": {},
    "AWAC": {"temperature": 10.0},
}

pytestmark = pytest.mark.learn


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_swings_up_what_it_has_never_touched(name: str, seed: int) -> None:
    model = getattr(polyak, name)("MlpPolicy", pendulum(), seed=seed, **{**SMALL, **ALGORITHMS[name]})
    mean, deviation = evaluate_policy(model.learn(UPDATES), gym.make("Pendulum-v1"), n_eval_episodes=20)
    print(f"{name} seed {seed}: {mean:.0f} +- {deviation:.0f} after {UPDATES} updates")
    assert mean >= WANTED


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balances_a_pole_that_others_balanced(seed: int) -> None:
    """Half of the recorded actions are random: what is best must be told from what is usual."""
    options: dict[str, Any] = {"policy_kwargs": {"net_arch": [64, 64]}, "learning_rate": 1e-3, "device": "cpu"}
    data = collect("CartPole-v1", _sloppy, 10_000, seed=7)
    model = polyak.DiscreteCQL("MlpPolicy", data, seed=seed, batch_size=64, **options).learn(UPDATES)
    mean, _ = evaluate_policy(model, gym.make("CartPole-v1"), n_eval_episodes=20)
    print(f"DiscreteCQL seed {seed}: {mean:.0f}; recorded {data.returns.mean():.0f}")
    assert data.returns.mean() < 250
    assert mean >= 475


_DRAWS = np.random.RandomState(0)


def _sloppy(obs: np.ndarray) -> int:
    """Push towards where the pole falls, half of the time."""
    return int(_DRAWS.randint(2)) if _DRAWS.rand() < 0.5 else int(obs[2] + 0.5 * obs[3] + 0.1 * obs[0] > 0)
