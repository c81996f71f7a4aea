"""What offline algorithms learn from here: all that SAC experienced while it learned to swing up a pendulum."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np

from polyak import SAC
from polyak.data import Dataset

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
