"""DQN's family and SAC with runners, learners and replay in other processes, on Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from polyak.algorithms.sac import SACLearner
from polyak.compat.rllib_face import DQNConfig, RainbowConfig, SACConfig
from tests.compat.rllib_face.on_ray import replaying, session_of, sharded, trained, weights
from tests.processes import assert_gone

pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some
session = session_of(12)


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
    return replaying(cls, **{**training, **others})


# -- the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "learners"), [("dqn", 0), *((name, 1) for name in FAMILY)])
def test_one_runner_and_one_learner_make_the_numbers_of_this_process(name: str, learners: int) -> None:
    expected = trained(member(name))
    np.testing.assert_array_equal(expected, trained(member(name, runners=1, learners=learners)))


class Reproducible(SACLearner):
    """Draws no random numbers: the noise of an action is a function of its mean, whoever learns from the row."""

    def gradient_step(self, *what: Any) -> Any:
        with patch.object(torch, "randn_like", lambda mean: torch.sin(7 * mean)):
            return super().gradient_step(*what)


@pytest.mark.parametrize("name", ["dqn", "c51", "sac"])
def test_two_learners_of_a_half_each_learn_what_one_does_of_the_whole(name: str) -> None:
    own = {"learner_class": Reproducible} if name == "sac" else {}
    one, two = (trained(member(name, learners=learners, **own), 1) for learners in (0, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=2e-6)


def test_several_runners_with_a_seed_make_equal_numbers_and_keep_the_ratio_of_updates() -> None:
    found = []
    for _ in range(2):
        with replaying(runners=2).build() as algo:
            steps = algo.train()["num_env_steps_sampled_lifetime"]
            found.append(weights(algo))
            assert steps == 208, "13 rounds of two fragments of 4 steps of 2 environments"
            assert algo.model.learner.steps == 2 * 7, "of which 7 came after the first 100 steps"
    np.testing.assert_array_equal(found[0], found[1])


# -- replay elsewhere, and nobody waits --------------------------------------------------------------------------------


def test_asynchronous_runners_and_shards_keep_the_ratio_of_updates(tmp_path: Path) -> None:
    made = sharded(runners=2, seed=None).training(store_buffer_in_checkpoints=True)
    with made.build() as algo:
        before = weights(algo)
        for _ in range(3):
            steps = algo.train()["num_env_steps_sampled_lifetime"]
        assert steps == 3 * 208
        assert algo.model.learner.steps == 2 * (39 - 6), "two for each of the 39 rounds but the first six"
        assert not np.array_equal(before, weights(algo))
        size = algo.model.replay_buffer.size()
        algo.save_to_path(tmp_path)
        algo.restore_from_path(tmp_path)
        assert algo.model.replay_buffer.size() == size == 3 * 208 // 4
        assert algo.train()["num_env_steps_sampled_lifetime"] == 4 * 208
        processes = [*algo.env_runner_group.processes.values(), *algo.model.replay_buffer.processes]
    assert_gone(processes)


def test_equal_seeds_give_equal_numbers_with_shards() -> None:
    one, two = (trained(sharded(runners=2), 1) for _ in range(2))
    np.testing.assert_array_equal(one, two)


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
        np.testing.assert_array_equal(expected, weights(algo))
        processes = list(algo.learner_group.processes)
    assert_gone(processes)
