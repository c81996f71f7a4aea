"""Masks that only runners elsewhere see reach those who learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.compat.rllib_face import DQNConfig, PPOConfig
from tests.compat.rllib_face.on_ray import session_of, trained

pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some
session = session_of(8)


class Strict(gym.Env):
    """Allows some of four choices, others after every step, fails on the rest, and rewards the smallest of them.

    Args:
        config: says how it tells: "method" or "info".
    """

    def __init__(self, config: dict[str, str]) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 1, (4,), np.float32), spaces.Discrete(4)
        self.says = config["says"]
        if self.says == "method":
            self.action_masks = lambda: self.mask.copy()

    def _tell(self) -> tuple[np.ndarray, dict[str, Any]]:
        self.mask = self.np_random.random(4) < 0.5
        self.mask[self.np_random.integers(4)] = True
        return self.mask.astype(np.float32), {"action_mask": self.mask.copy()} if self.says == "info" else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._tell()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.mask[action]:
            raise ValueError(f"{action} is forbidden by {self.mask}")
        reward, self.steps = float(action == self.mask.argmax()), self.steps + 1
        observation, info = self._tell()
        return observation, reward, self.steps == 6, False, info


def config(cls: Any, says: str, runners: int, learners: int = 0, seed: int | None = 3) -> Any:
    made = cls().environment(Strict, env_config={"says": says}).debugging(seed=seed)
    made.rl_module(model_config={"fcnet_hiddens": [16], "head_fcnet_hiddens": [16]})
    made.env_runners(num_env_runners=runners, num_envs_per_env_runner=2, rollout_fragment_length=8)
    made.learners(num_learners=learners).framework(torch_compile_learner=False)
    made.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=160)
    if cls is PPOConfig:
        return made.training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=2)
    return made.training(
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=32,
        target_network_update_freq=32,
        epsilon=[[0, 1.0], [200, 0.1]],
    )


@pytest.mark.parametrize("says", ["method", "info"])
@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig])
@pytest.mark.parametrize("learners", [0, 1])
def test_masks_are_learned_from_as_in_this_process(cls: Any, says: str, learners: int) -> None:
    expected = trained(config(cls, says, 0))
    np.testing.assert_array_equal(expected, trained(config(cls, says, 1, learners)))


@pytest.mark.parametrize("says", ["method", "info"])
@pytest.mark.parametrize("shards", [0, 2])
def test_a_buffer_with_masks_is_saved_and_goes_on(says: str, shards: int, tmp_path: Path) -> None:
    made = config(DQNConfig, says, 2, seed=None).training(
        replay_buffer_config={"capacity": 1000, **({"num_replay_buffer_shards": shards} if shards else {})},
        store_buffer_in_checkpoints=True,
    )
    with made.build() as algo:
        algo.train()
        size = algo.model.replay_buffer.size()
        algo.save_to_path(tmp_path)
        algo.restore_from_path(tmp_path)
        assert algo.model.replay_buffer.size() == size > 0
        algo.train()
        assert algo.model.replay_buffer.size() > size
