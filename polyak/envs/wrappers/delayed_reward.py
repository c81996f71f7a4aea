"""Rewards that come late: a task made harder on purpose."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from polyak.envs.sizes import check_size


class DelayedRewardWrapper(gym.Wrapper):
    """Gives the rewards of `delay` steps together, at the last of these steps or at the end of the episode; 0 before.

    Args:
        env: the environment to wrap.
        delay: steps between two rewards.

    Raises:
        ValueError: ``delay`` is less than 1.
    """

    def __init__(self, env: gym.Env, delay: int = 10) -> None:
        super().__init__(env)
        check_size("delay", delay)
        self.delay = delay
        self._steps, self._owed = 0, 0.0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._steps, self._owed = 0, 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._owed += float(reward)
        paid = 0.0
        if self._steps % self.delay == 0 or terminated or truncated:
            paid, self._owed = self._owed, 0.0
        return observation, paid, terminated, truncated, info
