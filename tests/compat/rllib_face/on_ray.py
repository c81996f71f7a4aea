"""Ray for tests: a session for each file, and small configs of what trains on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from polyak.compat.rllib_face import Algorithm, DQNConfig, PPOConfig, SACConfig
from tests.processes import PATIENCE

ray = pytest.importorskip("ray")


def session_of(processors: int) -> Callable[..., Any]:
    """A fixture: Ray with room for so many processes while the tests of a file run; skips them where none can start."""

    @pytest.fixture(scope="module", autouse=True)
    def session() -> Iterator[None]:
        try:
            ray.init("local", num_cpus=processors, include_dashboard=False, log_to_driver=False, logging_level="error")
        except Exception as error:  # it wants sockets, shared memory and more
            pytest.skip(f"Ray does not start here: {error}")
        yield
        ray.shutdown()

    return session


def config(cls: Any = PPOConfig, runners: int = 0, learners: int = 0, **training: Any) -> Any:
    made = cls().environment("CartPole-v1").debugging(seed=3).rl_module(model_config={"fcnet_hiddens": [16]})
    made.env_runners(num_env_runners=runners, num_envs_per_env_runner=2).learners(num_learners=learners)
    made.framework(torch_compile_learner=False).reporting(min_time_s_per_iteration=None)
    made.fault_tolerance(delay_between_env_runner_restarts_s=0).env_runners(sample_timeout_s=PATIENCE)
    own = {"minibatch_size": 64, "num_epochs": 2} if cls is PPOConfig else {}
    fragment = "auto" if cls is PPOConfig else 16
    made.env_runners(rollout_fragment_length=fragment)
    size = 256 if cls is PPOConfig else 64
    return made.training(train_batch_size_per_learner=size // max(1, learners), lr=1e-3, **own, **training)


def replaying(cls: Any = DQNConfig, runners: int = 0, learners: int = 0, seed: int | None = 3, **training: Any) -> Any:
    made = cls().environment("Pendulum-v1" if cls is SACConfig else "CartPole-v1").debugging(seed=seed)
    made.rl_module(model_config={"fcnet_hiddens": [16], "head_fcnet_hiddens": [16], "fcnet_activation": "relu"})
    made.env_runners(num_env_runners=runners, num_envs_per_env_runner=2, rollout_fragment_length=4)
    made.learners(num_learners=learners).framework(torch_compile_learner=False)
    made.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=200)
    made.fault_tolerance(delay_between_env_runner_restarts_s=0).env_runners(sample_timeout_s=PATIENCE)
    own: dict[str, Any] = {"num_steps_sampled_before_learning_starts": 100, "target_network_update_freq": 50}
    return made.training(train_batch_size_per_learner=32 // max(1, learners), **{**own, **training})


def sharded(shards: int = 2, **others: Any) -> Any:
    made = replaying(**others)
    return made.training(replay_buffer_config={"capacity": 5000, "num_replay_buffer_shards": shards})


def weights(algo: Algorithm) -> np.ndarray:
    return np.concatenate([part.reshape(-1) for part in algo.get_weights()["default_policy"].values()])


def trained(made: Any, iterations: int = 2) -> np.ndarray:
    with made.build() as algo:
        for _ in range(iterations):
            algo.train()
        return weights(algo)
