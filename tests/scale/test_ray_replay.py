"""DQN's family and SAC with runners, learners and replay in other processes, on Ray."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from polyak.algorithms.sac import SACLearner
from polyak.scale import DQNConfig, RainbowConfig, SACConfig
from tests.scale.test_ray import assert_gone, trained, weights

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    ray.init("local", num_cpus=12, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def config(cls: Any = DQNConfig, runners: int = 0, learners: int = 0, seed: int | None = 3, **training: Any) -> Any:
    made = cls().environment("Pendulum-v1" if cls is SACConfig else "CartPole-v1").debugging(seed=seed)
    made.rl_module(model_config={"fcnet_hiddens": [16], "head_fcnet_hiddens": [16], "fcnet_activation": "relu"})
    made.env_runners(num_env_runners=runners, num_envs_per_env_runner=2, rollout_fragment_length=4)
    made.learners(num_learners=learners).framework(torch_compile_learner=False)
    made.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=200)
    made.fault_tolerance(delay_between_env_runner_restarts_s=0)
    own: dict[str, Any] = {"num_steps_sampled_before_learning_starts": 100, "target_network_update_freq": 50}
    return made.training(train_batch_size_per_learner=32 // max(1, learners), **{**own, **training})


FAMILY = {
    "dqn": (DQNConfig, {}),
    "plain": (
        DQNConfig,
        {"double_q": False, "dueling": False, "replay_buffer_config": {"type": "EpisodeReplayBuffer"}},
    ),
    "c51": (DQNConfig, {"num_atoms": 11, "v_min": 0.0, "v_max": 100.0, "n_step": 3}),
    "rainbow": (RainbowConfig, {"num_atoms": 11, "v_min": 0.0, "v_max": 100.0}),
    "sac": (SACConfig, {}),
}


def member(name: str, **others: Any) -> Any:
    cls, training = FAMILY[name]
    return config(cls, **{**training, **others})


# -- the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "learners"), [("dqn", 0), *((name, 1) for name in FAMILY)])
def test_one_runner_and_one_learner_make_the_numbers_of_this_process(name: str, learners: int) -> None:
    expected = trained(member(name))
    for ours, theirs in zip(expected, trained(member(name, runners=1, learners=learners)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


class Reproducible(SACLearner):
    """Draws no random numbers: the noise of an action is a function of its mean, whoever learns from the row."""

    def gradient_step(self, *what: Any) -> Any:
        with patch.object(torch, "randn_like", lambda mean: torch.sin(7 * mean)):
            return super().gradient_step(*what)


@pytest.mark.parametrize("name", ["dqn", "c51", "sac"])
def test_two_learners_of_a_half_each_learn_what_one_does_of_the_whole(name: str) -> None:
    own = {"learner_class": Reproducible} if name == "sac" else {}
    one, two = (trained(member(name, learners=learners, **own), 1) for learners in (0, 2))
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_several_runners_take_turns_where_there_is_a_seed_and_keep_the_ratio_of_updates() -> None:
    found = []
    for _ in range(2):
        with config(runners=2).build() as algo:
            steps = algo.train()["num_env_steps_sampled_lifetime"]
            found.append(weights(algo))
            assert steps == 208, "13 rounds of two fragments of 4 steps of 2 environments"
            assert algo.model.learner.steps == 2 * 7, "of which 7 came after the first 100 steps"
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# -- replay elsewhere, and nobody waits --------------------------------------------------------------------------------


def sharded(shards: int = 2, **others: Any) -> Any:
    made = config(**others)
    return made.training(replay_buffer_config={"capacity": 5000, "num_replay_buffer_shards": shards})


def test_asynchronous_runners_and_shards_keep_the_ratio_of_updates(tmp_path: Path) -> None:
    made = sharded(runners=2, seed=None).training(store_buffer_in_checkpoints=True)
    with made.build() as algo:
        before = weights(algo)
        for _ in range(3):
            steps = algo.train()["num_env_steps_sampled_lifetime"]
        assert steps == 3 * 208
        assert algo.model.learner.steps == 2 * (39 - 6), "two for each of the 39 rounds but the first six"
        assert not all(np.array_equal(a, b) for a, b in zip(before, weights(algo), strict=True))
        size = algo.model.replay_buffer.size()
        algo.save_to_path(tmp_path)
        algo.restore_from_path(tmp_path)
        assert algo.model.replay_buffer.size() == size == 3 * 208 // 4
        assert algo.train()["num_env_steps_sampled_lifetime"] == 4 * 208
        processes = [*algo.env_runner_group.processes.values(), *algo.model.replay_buffer.processes]
    assert_gone(processes)


def test_equal_seeds_give_equal_numbers_with_shards() -> None:
    one, two = (trained(sharded(runners=2), 1) for _ in range(2))
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_killed_shard_and_a_killed_runner_are_replaced_and_training_goes_on() -> None:
    with sharded(runners=2, seed=None).build() as algo:
        algo.train()
        buffer = algo.model.replay_buffer
        os.kill(buffer.processes[0], signal.SIGKILL)
        os.kill(algo.env_runner_group.processes[1], signal.SIGKILL)
        until = time.monotonic() + 300
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainings = 1
            while not (buffer.num_restarts and algo.env_runner_group.num_restarts) and time.monotonic() < until:
                steps = algo.train()["num_env_steps_sampled_lifetime"]
                trainings += 1
            steps = algo.train()["num_env_steps_sampled_lifetime"]
        words = " ".join(str(warning.message) for warning in caught)
        assert "replay shard 1 of 2 is gone" in words
        assert "runner 2 of 2 is gone" in words
        assert steps == (trainings + 1) * 208, "as many as without"
        assert algo.model.learner.steps == 2 * (steps // 16 - 6)


def test_a_killed_learner_is_restored_and_does_again_what_is_lost() -> None:
    """With a seed even the numbers are those of a training that nobody disturbed."""
    expected = trained(config(learners=1), 3)
    with config(learners=1).build() as algo:
        algo.train()
        os.kill(algo.learner_group.processes[0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="a learner is gone"):
            algo.train()
        assert algo.learner_group.restarts == 1
        algo.train()
        for ours, theirs in zip(expected, weights(algo), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        processes = list(algo.learner_group.processes)
    assert_gone(processes)
