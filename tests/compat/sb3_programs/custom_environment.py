"""Environments of your own: one after Gymnasium's interface, checked; and one that steps many copies in one go."""

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor


class Corridor(gym.Env):
    """Walk left to the door of a corridor; each step costs a little.

    Args:
        length: how far away the far end is.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(self, length: int = 8, render_mode: str | None = None) -> None:
        self.length, self.render_mode = length, render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._at = length

    def _observe(self) -> np.ndarray:
        return np.array([self._at / self.length], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._at = int(self.np_random.integers(1, self.length + 1))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._at = int(np.clip(self._at + (1 if action == 1 else -1), 0, self.length))
        arrived = self._at == 0
        return self._observe(), 1.0 if arrived else -0.05, arrived, False, {"is_success": arrived}

    def render(self) -> str | None:
        return "D" + "." * self._at + "x" if self.render_mode == "ansi" else None


class ManyCorridors(VecEnv):
    """The same, for many walkers at once and without a loop over them.

    Args:
        num_envs: how many.
        length: how far away the far end is.
    """

    def __init__(self, num_envs: int, length: int = 8) -> None:
        super().__init__(num_envs, spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2))
        self.length = length
        self.render_mode = None
        self._generator = np.random.default_rng(0)
        self._at = np.zeros(num_envs, np.int64)
        self._actions = np.zeros(num_envs, np.int64)

    def _observe(self) -> np.ndarray:
        return (self._at[:, None] / self.length).astype(np.float32)

    def reset(self) -> np.ndarray:
        self._at = self._generator.integers(1, self.length + 1, self.num_envs)
        return self._observe()

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self._at = np.clip(self._at + np.where(self._actions == 1, 1, -1), 0, self.length)
        arrived = self._at == 0
        rewards = np.where(arrived, 1.0, -0.05).astype(np.float32)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        last = self._observe()
        for index in np.flatnonzero(arrived):  # the next episode begins at once
            infos[index] = {"terminal_observation": last[index], "TimeLimit.truncated": False}
        self._at = np.where(arrived, self._generator.integers(1, self.length + 1, self.num_envs), self._at)
        return self._observe(), rewards, arrived, infos

    def close(self) -> None:
        """Nothing to release."""

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        self._generator = np.random.default_rng(seed)
        return [None if seed is None else seed + index for index in range(self.num_envs)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class Flipped(VecEnvWrapper):
    """A wrapper around all at once: left is right."""

    def reset(self) -> np.ndarray:
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        self.venv.step_async(1 - actions)

    def step_wait(self) -> Any:
        return self.venv.step_wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args()

    check_env(Corridor(), warn=True)
    env = make_vec_env(Corridor, n_envs=2, env_kwargs={"length": 6}, seed=0)
    model = A2C("MlpPolicy", env, seed=0, device="cpu").learn(options.steps)
    single, text = Corridor(length=6, render_mode="ansi"), []
    observation, _ = single.reset(seed=1)
    for _ in range(12):
        action, _ = model.predict(observation, deterministic=True)
        observation, _, over, _, _ = single.step(int(action))
        text.append(str(single.render()))
        if over:
            break
    print("the walk:", " ".join(text))

    for many in (VecMonitor(ManyCorridors(16)), VecMonitor(Flipped(ManyCorridors(16)))):
        model = PPO("MlpPolicy", many, n_steps=32, batch_size=128, seed=0, device="cpu").learn(options.steps)
        print("mean return:", round(float(np.mean([episode["r"] for episode in model.ep_info_buffer])), 2))

    class Wrong(Corridor):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            return self._observe()

    try:
        check_env(Wrong())
    except AssertionError as error:
        print("the checker found:", str(error)[:60])


if __name__ == "__main__":
    main()
