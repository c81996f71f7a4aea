"""A wrapper that repeats each action for several steps."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from polyak.envs.sizes import check_size


class FrameSkip(gym.Wrapper):
    """Repeats each action, adds up the rewards and shows the last observation; the end of an episode cuts it short.

    Args:
        env: the environment to wrap.
        skip: steps for one action.

    Raises:
        ValueError: ``skip`` is less than 1.
    """

    def __init__(self, env: gym.Env, skip: int = 4) -> None:
        super().__init__(env)
        check_size("skip", skip)
        self.skip = skip

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info
