"""DQN's family and SAC with runners, learners and replay in other processes, on Ray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from polyak.algorithms.sac import SACLearner
from polyak.scale import DQNConfig, RainbowConfig, SACConfig
from tests.scale.test_ray import trained, weights

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    ray.init(num_cpus=12, include_dashboard=False, log_to_driver=False, logging_level="error")
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
