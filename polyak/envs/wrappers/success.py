"""Episodes that end when the task is done."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from polyak.envs.sizes import check_size


class TruncatedOnSuccessWrapper(gym.Wrapper):
    """Truncates an episode after `n_successes` steps in a row with ``info["is_success"]``.

    Args:
        env: the environment to wrap; one that can relabel rewards (``compute_reward``) still can.
        reward_offset: added to every reward, relabelled ones included; a negative one penalises long episodes.
        n_successes: number of successive steps.

    Raises:
        ValueError: ``n_successes`` is less than 1.
    """

    def __init__(self, env: gym.Env, reward_offset: float = 0.0, n_successes: int = 1) -> None:
        super().__init__(env)
        check_size("n_successes", n_successes)
        self.reward_offset = reward_offset
        self.n_successes = n_successes
        self._in_a_row = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._in_a_row = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._in_a_row = self._in_a_row + 1 if info.get("is_success", False) else 0
        enough = self._in_a_row >= self.n_successes
        return observation, float(reward) + self.reward_offset, terminated, truncated or enough, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Returns the environment's reward for a pair of achieved and desired goals, plus the offset."""
        reward = self.env.get_wrapper_attr("compute_reward")(achieved_goal, desired_goal, info)
        return reward + self.reward_offset
