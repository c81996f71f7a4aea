"""Small environments without chance, for programs that compare numbers."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Counting(gym.Env):
    """Observation (t, number of the episode), reward t; an episode lasts ``length`` steps and ends as ``end`` says.

    Args:
        length: steps of an episode.
        end: ``"terminated"``, ``"truncated"`` or ``"both"``.
        action_space: anything; a Discrete(3) unless given.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, length: int = 3, end: str = "terminated", action_space: spaces.Space | None = None) -> None:
        self.length, self.end = length, end
        self.render_mode = "rgb_array"
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.time, self.episode = 0, -1
        self.seeds: list[Any] = []
        self.given_options: list[Any] = []
        self.seen_actions: list[Any] = []

    def _observe(self) -> np.ndarray:
        return np.array([self.time, self.episode], np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.given_options.append(options)
        self.time, self.episode = 0, self.episode + 1
        return self._observe(), {"episode number": self.episode}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.seen_actions.append(np.array(action))
        self.time += 1
        over = self.time >= self.length
        terminated, truncated = over and self.end != "truncated", over and self.end != "terminated"
        info = {"time": self.time, "is_success": self.episode % 2 == 0}
        return self._observe(), float(self.time), terminated, truncated, info

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), self.time, np.uint8)

    def double(self, value: float, plus: float = 0.0) -> float:
        return 2 * value + plus


class Pictures(gym.Env):
    """Pictures whose numbers are the time step.

    Args:
        shape: of a picture.
        length: steps of an episode.
    """

    def __init__(self, shape: tuple[int, int, int] = (36, 36, 1), length: int = 4) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(2)
        self.length, self.time = length, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return np.full(self.observation_space.shape, self.time, np.uint8), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.time += 1
        over = self.time >= self.length
        return np.full(self.observation_space.shape, self.time, np.uint8), 1.0, over, False, {}


class Several(gym.Env):
    """A Dict of a picture, a vector and a number.

    Args:
        action_space: a Discrete(2) unless given.
    """

    def __init__(self, action_space: spaces.Space | None = None) -> None:
        self.observation_space = spaces.Dict(
            {
                "picture": spaces.Box(0, 255, (36, 36, 1), np.uint8),
                "vector": spaces.Box(-10.0, 10.0, (3,), np.float32),
                "number": spaces.Discrete(4),
            }
        )
        self.action_space = action_space or spaces.Discrete(2)
        self.time = 0

    def _observe(self) -> dict[str, Any]:
        picture = np.full((36, 36, 1), 10 * self.time, np.uint8)
        return {"picture": picture, "vector": np.full(3, self.time, np.float32), "number": self.time % 4}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        self.time += 1
        return self._observe(), 1.0, self.time >= 5, False, {}


class Target(gym.Env):
    """Reward for an action near a number that the observation tells."""

    def __init__(self, low: float = -2.0, high: float = 2.0) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Box(np.float32(low), np.float32(high), (1,), np.float32)
        self.time = 0

    def _observe(self) -> np.ndarray:
        return np.array([np.sin(self.time), np.cos(self.time)], np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = -float(np.abs(np.asarray(action).ravel()[0] - self._observe()[0]))
        self.time += 1
        return self._observe(), reward, False, self.time >= 10, {}


class Goals(gym.Env):
    """Count up to a goal."""

    def __init__(self) -> None:
        box = spaces.Box(-20.0, 20.0, (1,), np.float32)
        self.observation_space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.time = 0

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        return -np.abs(np.asarray(achieved_goal) - np.asarray(desired_goal)).sum(-1).astype(np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        here = np.array([self.time], np.float32)
        return {"observation": here + 0.5, "achieved_goal": here, "desired_goal": np.array([9.0], np.float32)}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        self.time += 1
        seen = self._observe()
        reward = float(self.compute_reward(seen["achieved_goal"], seen["desired_goal"], {}))
        return seen, reward, False, self.time >= 4, {"is_success": False}
