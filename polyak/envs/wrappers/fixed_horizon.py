"""A wrapper that makes all episodes equally long."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from polyak.envs.sizes import check_size
from polyak.envs.wrappers.time_feature import time_limit


class FixedHorizon(gym.Wrapper):
    """Every episode has ``steps`` steps: after a terminal state it stays there, with reward 0, until they are over.

    Where episodes end early, a learned reward of constant sign can be maximised by long or by short episodes, without
    any knowledge of the task. So imitation is evaluated where all episodes have the same length (Kostrikov et al. 2019,
    arXiv:1809.02925). The end after ``steps`` is a truncation.

    Args:
        env: the environment to wrap; one with a time limit of its own needs one of at least ``steps``.
        steps: length of every episode.

    Raises:
        ValueError: ``steps`` is less than 1, or more than the environment's time limit allows.
    """

    def __init__(self, env: gym.Env, steps: int) -> None:
        super().__init__(env)
        check_size("steps", steps)
        limit = time_limit(env)
        if limit is not None and limit < steps:
            raise ValueError(
                f"steps={steps} exceeds the environment's own time limit of {limit}, where its episodes are truncated. "
                f"Use at most {limit}, or make it with max_episode_steps={steps}."
            )
        self.steps = steps
        self._time, self._last = 0, None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._time, self._last = 0, None
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        self._time += 1
        over = self._time >= self.steps
        if self._last is not None:
            return self._last, 0.0, False, over, {}
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated:
            self._last = observation
        return observation, reward, False, over or (truncated and not terminated), info
