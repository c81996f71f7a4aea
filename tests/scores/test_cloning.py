"""Algorithms that imitate, or imitate what was better than the rest, on what others recorded (``make learn``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from polyak import BC, BCQ, IQL, DecisionTransformer
from polyak.envs import make_vec_env
from polyak.evaluation.in_environments import evaluate_policy
from polyak.experience import Dataset, collect
from polyak.schedules import LinearSchedule

from .recorded import balancer, pendulum

pytestmark = pytest.mark.learn

SEEDS = (0, 1, 2)
SMALL: dict[str, Any] = {"batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}, "device": "cpu"}


class Unsteady:
    """The balancer, but in each episode another share of actions is random."""

    def __init__(self, shares: tuple[float, ...], seed: int = 0) -> None:
        self.shares, self.rng, self.share = shares, np.random.default_rng(seed), 0.0

    def predict(self, obs: Any, state: Any, starts: Any, deterministic: bool) -> tuple[Any, Any]:
        if np.all(starts):
            self.share = self.rng.choice(self.shares)
        action, _ = balancer().predict(obs, deterministic=True)
        return np.where(self.rng.random() < self.share, self.rng.integers(2), action), None


@lru_cache
def mixed() -> Dataset:
    """20,000 steps of episodes that end early or late."""
    return collect("CartPole-v1", Unsteady((0.3, 0.5, 0.7, 1.0)), 20_000, seed=5)


def score(model: Any, env: str, episodes: int = 20, deterministic: bool = True) -> tuple[float, np.ndarray]:
    """Mean and all returns."""
    env_of_one = make_vec_env(env, n_envs=1, seed=10_000)
    returns, _ = evaluate_policy(model, env_of_one, episodes, deterministic=deterministic, return_episode_rewards=True)
    return float(np.mean(returns)), np.array(returns)


def said(what: str, seed: int, mean: float, data: Dataset) -> None:
    print(f"{what} seed {seed}: {mean:.1f}; recorded {data.returns.mean():.1f}, the best {data.returns.max():.1f}")


@pytest.mark.parametrize("seed", SEEDS)
def test_bc_balances_as_it_was_shown_ten_times(seed: int) -> None:
    shown = collect("CartPole-v1", balancer(), 4_501, whole_episodes=True, seed=100)
    assert shown.n_episodes == 10
    mean, _ = score(BC("MlpPolicy", shown, seed=seed, **SMALL).learn(2_000), "CartPole-v1")
    said("BC CartPole", seed, mean, shown)
    assert mean >= 475


@pytest.mark.parametrize("seed", SEEDS)
def test_bc_swings_up_as_it_was_shown(seed: int) -> None:
    """Its mean lies in an interval around that of what it clones: the later half of what SAC experienced."""
    shown = pendulum().select(np.arange(50, 100))
    mean, returns = score(BC("MlpPolicy", shown, seed=seed, **SMALL).learn(10_000), "Pendulum-v1", 50)
    said("BC Pendulum", seed, mean, shown)
    error = np.hypot(returns.std() / 50**0.5, shown.returns.std() / 50**0.5)
    assert abs(mean - shown.returns.mean()) < 3 * error


@pytest.mark.parametrize("seed", SEEDS)
def test_iql_swings_up_better_than_most_that_was_recorded(seed: int) -> None:
    options: dict[str, Any] = {"learning_rate": 1e-3, "actor_learning_rate": LinearSchedule(1e-3, 0.0, 1.0)}
    mean, _ = score(IQL("MlpPolicy", pendulum(), seed=seed, **SMALL, **options).learn(20_000), "Pendulum-v1")
    said("IQL Pendulum", seed, mean, pendulum())
    assert mean >= -250


@pytest.mark.parametrize("seed", SEEDS)
def test_bcq_balances_better_than_what_was_recorded(seed: int) -> None:
    """At a threshold of 0, where it is DQN, returns are 67 to 227."""
    options: dict[str, Any] = {"threshold": 0.5, "policy_kwargs": {"net_arch": [64, 64]}, "device": "cpu"}
    falling = LinearSchedule(1e-3, 0.0, 1.0)
    model = BCQ("MlpPolicy", mixed(), learning_rate=falling, seed=seed, **options).learn(10_000)
    mean, _ = score(model, "CartPole-v1")
    said("BCQ CartPole", seed, mean, mixed())
    assert mixed().returns.mean() < 200
    assert mean >= 475


@pytest.mark.parametrize("seed", SEEDS)
def test_decision_transformer_balances_as_long_as_it_is_asked_to(seed: int) -> None:
    options: dict[str, Any] = {
        "policy_kwargs": {"width": 64, "n_layers": 2},
        "context_length": 10,
        "warmup_steps": 500,
        "learning_rate": 1e-3,
        "device": "cpu",
    }
    model = DecisionTransformer("MlpPolicy", mixed(), seed=seed, **options).learn(2_500)
    mean, _ = score(model, "CartPole-v1")
    said("Decision Transformer CartPole", seed, mean, mixed())
    assert mean >= 2 * mixed().returns.mean()
    model.target_return = 20.0
    low, _ = score(model, "CartPole-v1", deterministic=False)  # who falls soon acts at random: its mode need not fall
    said("asked for 20", seed, low, mixed())
    assert low < mixed().returns.mean()
