"""Runners in processes of their own: equal to runners here, and replaced when they die."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import polyak
from tests.distributed.test_runners import CASES, Kept, weights
from tests.scale.on_ray import assert_gone, session_of

session = session_of(8)
QUICK = ("ppo", "sac")


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_training_is_equal_to_that_with_runners_here(case: str) -> None:
    here, there = Kept(), Kept()
    one = CASES[case](n_runners=2, transport="local").learn(150, here)
    other = CASES[case](n_runners=2).learn(150, there)
    np.testing.assert_array_equal(here.rewards, there.rewards)
    np.testing.assert_array_equal(weights(one), weights(other))
    other.env.close()
    assert_gone(other.env.processes)


@pytest.mark.parametrize("case", ["ppo", pytest.param("her", marks=pytest.mark.slow)])
def test_a_killed_runner_is_replaced(case: str) -> None:
    def kill(names: dict[str, Any], _: Any) -> bool:
        model = names["self"]
        if not killed and model.num_timesteps >= 100:
            killed.append(model.env.processes[1])
            os.kill(killed[0], signal.SIGKILL)
        return True

    killed: list[int] = []
    model = CASES[case](n_runners=2)
    with pytest.warns(RuntimeWarning, match="runner 2 of 2 is gone"):
        model.learn(400, kill)
    assert model.num_timesteps >= 400
    assert model.env.workers.restarts == 1
    assert model.env.processes[1] != killed[0]
    assert np.isfinite(weights(model)).all()
    model.env.close()


@pytest.mark.slow
def test_an_actor_that_acts_ahead_has_runners_too() -> None:
    model = polyak.IMPALA("MlpPolicy", "CartPole-v1", n_runners=2, n_steps=16, seed=0, device="cpu")
    model.learn(600)
    assert model.num_timesteps >= 600
    assert len(model.ep_info_buffer) > 10
    assert model.env is not None
    model.env.close()
