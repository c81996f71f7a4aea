"""Processes on Ray that are killed in the middle of training, and what becomes of it."""

from __future__ import annotations

import os
import signal
import time
import warnings
from typing import Any

import numpy as np
import pytest

from polyak.compat.rllib_face import Algorithm, IMPALAConfig, PPOConfig
from tests.compat.rllib_face.on_ray import config, replaying, session_of, sharded, trained, weights
from tests.processes import assert_gone

session = session_of(8)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [PPOConfig, IMPALAConfig])
def test_a_killed_runner_is_replaced_and_training_goes_on(cls: Any) -> None:
    with config(cls, runners=2).build() as algo:
        algo.train()
        os.kill(algo.env_runner_group.processes[0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match=r"runner 1 of 2 is gone.*Another one"):
            steps = until_missed(algo)
        size = steps[1] - steps[0]
        assert steps == [size * (2 + n) for n in range(len(steps))], "batches are as large as before"
        until = time.monotonic() + 300
        while algo.env_runner_group.num_healthy_env_runners < 2 and time.monotonic() < until:
            result = algo.train()
        assert result["fault_tolerance"] == {"num_healthy_workers": 2, "num_remote_worker_restarts": 1}


def until_missed(algo: Algorithm) -> list[int]:
    """Train until a runner has been replaced: others that act in advance may have enough for a while."""
    steps: list[int] = []
    until = time.monotonic() + 300
    while (len(steps) < 3 or algo.env_runner_group.num_restarts == 0) and time.monotonic() < until:
        steps.append(algo.train()["num_env_steps_sampled_lifetime"])
    return steps


@pytest.mark.slow
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
            while not (buffer.workers.restarts and algo.env_runner_group.num_restarts) and time.monotonic() < until:
                steps = algo.train()["num_env_steps_sampled_lifetime"]
                trainings += 1
            steps = algo.train()["num_env_steps_sampled_lifetime"]
        words = " ".join(str(warning.message) for warning in caught)
        assert "replay shard 1 of 2 is gone" in words
        assert "runner 2 of 2 is gone" in words
        assert steps == (trainings + 1) * 208, "as many as without"
        assert algo.model.learner.steps == 2 * (steps // 16 - 6)


@pytest.mark.slow
def test_a_killed_learner_is_restored_and_does_again_what_is_lost() -> None:
    """With a seed even the numbers are those of a training that nobody disturbed."""
    expected = trained(replaying(learners=1), 3)
    with replaying(learners=1).build() as algo:
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
