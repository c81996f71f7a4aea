"""Environments small enough to solve by hand, so that a learnt value or policy can be compared with the truth."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Step = tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]


def action_space(continuous: bool) -> spaces.Space[Any]:
    """Two actions, or one number whose sign decides between them."""
    return spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2)


def says_yes(action: Any) -> bool:
    """Whether the action is the second one (a positive number, if continuous)."""
    value = np.asarray(action).reshape(-1)[0]
    return bool(value > 0) if np.issubdtype(np.asarray(action).dtype, np.floating) else bool(value == 1)


class OneState(gym.Env[np.ndarray, Any]):
    """One state, reward 1 a step, and every step ends the episode, by termination or by truncation.

    Whatever the policy, the value is 1 when ends are terminations and 1 / (1 - gamma) when they are truncations: a
    library that bootstraps wrongly cannot get both right.
    """

    def __init__(self, truncates: bool, continuous: bool) -> None:
        self.truncates = truncates
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = action_space(continuous)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Step:
        return np.ones(1, np.float32), 1.0, not self.truncates, self.truncates, {}


class Corridor(gym.Env[np.ndarray, Any]):
    """Go on ``length`` times for a reward of 1 at the end, or leave at any door for 0.2.

    An agent that looks one step ahead takes 0.2; only one that propagates value backwards earns 1.
    """

    def __init__(self, continuous: bool, length: int = 3) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = action_space(continuous)
        self.position = 0

    def _observation(self) -> np.ndarray:
        return np.eye(self.length, dtype=np.float32)[min(self.position, self.length - 1)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position = 0
        return self._observation(), {}

    def step(self, action: Any) -> Step:
        if not says_yes(action):
            return self._observation(), 0.2, True, False, {}
        self.position += 1
        arrived = self.position == self.length
        return self._observation(), float(arrived), arrived, False, {}


class Panel(gym.Env[np.ndarray, Any]):
    """A lamp says which button to press, a dial how far to pull the lever: both at once, for up to 1 a step.

    Actions: ``{"button": 1 ... lamps, "lever": [-1, 1]}``. The right button alone earns nothing, nor does the lever.
    """

    def __init__(self, lamps: int = 4, length: int = 20) -> None:
        self.lamps, self.length = lamps, length
        self.observation_space = spaces.Box(-1.0, 1.0, (lamps + 1,), np.float32)
        self.action_space = spaces.Dict(
            button=spaces.Discrete(lamps, start=1), lever=spaces.Box(-1.0, 1.0, (1,), np.float32)
        )

    def _look(self) -> np.ndarray:
        self.lamp, self.dial = int(self.np_random.integers(self.lamps)), float(self.np_random.uniform(-0.8, 0.8))
        return np.append(np.eye(self.lamps)[self.lamp], self.dial).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action: dict[str, Any]) -> Step:
        pressed = action["button"] == 1 + self.lamp
        reward = pressed * max(0.0, 1.0 - abs(float(action["lever"][0]) - self.dial))
        self.time += 1
        return self._look(), float(reward), False, self.time == self.length, {}


class PointMaze(gym.Env[dict[str, np.ndarray], np.ndarray]):
    """A point in a room [0, 4]^2 with a wall that leaves a passage on the right: the goal is behind it.

    A step moves the point by up to 0.5 along both axes, as far as no wall is in the way. The reward is -1, and 0 within
    0.5 of the goal; if ``dense``, minus the distance. Random walks of 50 steps seldom pass the wall.
    """

    wall = np.array([[-1.0, 1.5], [3.0, 2.5]])
    """Its lower left and its upper right corner."""
    start = np.array([0.5, 0.5])

    def __init__(self, length: int = 50, goal: tuple[float, float] = (0.5, 3.5), dense: bool = False) -> None:
        self.length, self.own, self.dense = length, np.array(goal, np.float32), dense
        here = spaces.Box(0.0, 4.0, (2,), np.float32)
        self.observation_space = spaces.Dict(observation=here, achieved_goal=here, desired_goal=here)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _observation(self) -> dict[str, np.ndarray]:
        here = self.position.astype(np.float32)
        return {"observation": here, "achieved_goal": here.copy(), "desired_goal": self.goal.copy()}

    def set_goal(self, goal: np.ndarray) -> None:
        self.goal = np.asarray(goal, np.float32)

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        distance = np.linalg.norm(achieved - desired, axis=-1)
        return -distance if self.dense else np.where(distance < 0.5, 0.0, -1.0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.goal = 0, self.own
        self.position = self.start + self.np_random.uniform(-0.25, 0.25, 2)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        for axis in range(2):
            moved = self.position.copy()
            moved[axis] = np.clip(moved[axis] + 0.5 * np.clip(action[axis], -1, 1), 0.0, 4.0)
            if not ((moved > self.wall[0]) & (moved < self.wall[1])).all():
                self.position = moved
        self.time += 1
        observation = self._observation()
        reward = float(self.compute_reward(observation["achieved_goal"], self.goal, {}))
        near = bool(np.linalg.norm(self.position - self.goal) < 0.5)
        return observation, reward, False, self.time == self.length, {"is_success": near}
