"""Evaluation in other processes, on Ray: between iterations, and while training goes on."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from polyak.compat.rllib_face import DQNConfig, PPOConfig
from tests.compat.rllib_face.on_ray import config, session_of, weights
from tests.processes import assert_gone

pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some
session = session_of(8)


def evaluating(evaluators: int, interval: int | None = 1, **options: Any) -> Any:
    made = config(PPOConfig).evaluation(evaluation_interval=interval, evaluation_duration=5)
    return made.evaluation(evaluation_num_env_runners=evaluators, **options)


def test_one_evaluator_plays_what_would_be_played_here() -> None:
    results = []
    for evaluators in (0, 1):
        with evaluating(evaluators).build() as algo:
            results.append([algo.train()["evaluation"]["env_runners"] for _ in range(2)])
    assert results[0] == results[1]


@pytest.mark.parametrize("unit", ["episodes", "timesteps"])
def test_several_play_as_much_as_they_are_told_and_training_notices_nothing(unit: str) -> None:
    found = []
    for interval in (None, 1):
        made = evaluating(
            2, interval, evaluation_duration_unit=unit, evaluation_parallel_to_training=interval is not None
        )
        with made.build() as algo:
            results = [algo.train() for _ in range(2)]
            found.append(weights(algo))
            processes = list(algo._evaluators.processes.values())
        assert_gone(processes)
    for result in results:
        played = result["evaluation"]["env_runners"]
        assert played["num_episodes"] == 5 if unit == "episodes" else played["num_env_steps_sampled"] >= 5
    np.testing.assert_array_equal(found[0], found[1])


def test_one_that_is_killed_is_replaced_and_nothing_is_left_out() -> None:
    made = evaluating(2, evaluation_duration="auto", evaluation_parallel_to_training=True)
    told: list[Any] = []
    made.callbacks(
        on_env_runners_recreated=lambda *, env_runner_indices, is_evaluation, **_: told.append(
            (env_runner_indices, is_evaluation)
        )
    )
    with made.build() as algo:
        first = algo.train()["evaluation"]["env_runners"]["num_episodes"]
        assert first >= 2, "as many as there was time for, but one of each at least"
        os.kill(algo._evaluators.processes[0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="evaluator 1 of 2 is gone"):
            again = algo.train()["evaluation"]["env_runners"]["num_episodes"]
        assert again >= 2
        assert algo._evaluators.num_restarts == 1
        assert told == []
        algo.train()
    assert told == [([1], True)], "before the next evaluation"


def test_random_actions_are_as_many_as_in_training_where_evaluation_explores() -> None:
    """With epsilon 1 all actions are random: a good policy would balance longer."""
    made = DQNConfig().environment("CartPole-v1").training(epsilon=1.0).debugging(seed=0)
    made.evaluation(evaluation_num_env_runners=1, evaluation_config={"explore": True}, evaluation_duration=20)
    with made.build() as algo:
        explores = algo.evaluate()["env_runners"]["episode_len_mean"]
    with made.copy().evaluation(evaluation_config={"explore": False}).build() as algo:
        best = algo.evaluate()["env_runners"]["episode_len_mean"]
    assert 15 < explores < 35, "a random policy lasts about 22 steps"
    assert best < 15, "that of an untrained network always pushes the same way"
