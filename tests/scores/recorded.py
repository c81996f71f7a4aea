"""What is learned from here: all that SAC experienced while it learned to swing up a pendulum, and one who balances."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np

from polyak import PPO, SAC
from polyak.envs import make_vec_env
from polyak.experience import Dataset, collect
from polyak.schedules import LinearSchedule

STEPS = 20_000


@lru_cache(maxsize=1)
def pendulum() -> Dataset:
    """The replay buffer of SAC after 20,000 steps: from random actions to good ones, in their order."""
    small: dict[str, Any] = {"learning_rate": 2e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}}
    model = SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", **small).learn(STEPS)
    buffer: Any = model.replay_buffer
    assert isinstance(model.action_space, gym.spaces.Box)
    over, cut = buffer.dones[:STEPS, 0].astype(bool), buffer.timeouts[:STEPS, 0].astype(bool)
    actions = np.clip(model.policy.to_env(buffer.actions[:STEPS, 0]), model.action_space.low, model.action_space.high)
    return Dataset(
        buffer.observations[:STEPS, 0],
        actions,
        buffer.rewards[:STEPS, 0],
        over & ~cut,
        cut,
        next_observations=buffer.next_observations[:STEPS, 0],
        observation_space=model.observation_space,
        action_space=model.action_space,
        env_id="Pendulum-v1",
    )


@lru_cache
def balancer() -> PPO:
    """A policy that never lets CartPole's pole fall, and keeps the cart within 0.1 m of the middle on average.

    Many seeds give one, which of them depends on the processor. Of an expert that stands elsewhere an imitator learns
    where to stand before it learns to balance.
    """
    options: dict[str, Any] = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20}
    falling = {"learning_rate": LinearSchedule(1e-3, 0.0, 1.0), "clip_range": LinearSchedule(0.2, 0.0, 1.0)}
    for seed in range(10):
        env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
        model = PPO("MlpPolicy", env, seed=seed, device="cpu", **options, **falling).learn(100_000)
        shown = collect(gym.make("CartPole-v1"), model, 5000, whole_episodes=True, seed=10_000)
        if np.mean(shown.lengths) >= 495 and abs(np.mean(shown.observations[:, 0])) <= 0.1:
            return model
    raise AssertionError("no PPO agent in ten balances in the middle")
