"""Learners in processes of their own: equal to learners that take turns here, and replaced when they die."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from polyak.distributed import learners
from tests.compat.rllib_face.on_ray import session_of
from tests.distributed.test_learners import CASES, DRAWING, STEPS
from tests.distributed.test_runners import weights
from tests.processes import PATIENCE, Killing, assert_gone

session = session_of(8)
MADE = {**CASES, **DRAWING}


@pytest.mark.parametrize("case", MADE)
@pytest.mark.slow
def test_training_is_equal_to_that_with_learners_here(case: str) -> None:
    """Of two learners, whose sums do not depend on the order."""
    one = MADE[case](n_learners=2, transport="local").learn(STEPS)
    other = MADE[case](n_learners=2, transport="ray").learn(STEPS)
    np.testing.assert_array_equal(weights(one), weights(other))
    other._learners.close()
    assert_gone(other._learners.processes)


@pytest.mark.slow
def test_a_killed_learner_is_replaced() -> None:
    kill = Killing(lambda model: model._learners.processes[0], after=64)
    model = CASES["ppo"](n_learners=2, transport="ray")
    with pytest.warns(RuntimeWarning, match="a learner is gone"):
        model.learn(256, kill)
    assert model._learners.restarts == 1
    assert model._learners.processes[0] != kill.killed
    assert model.num_timesteps == 256
    assert np.isfinite(weights(model)).all()
    model._learners.close()


@pytest.mark.slow
def test_a_learner_that_dies_while_learners_meet_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one here waits for it, for longer than this test has patience."""
    model = CASES["ppo"](n_learners=2, transport="ray").learn(64)
    real, killed = learners.SocketGroup, list[int]()

    def meet(*known: Any) -> Any:
        if not killed:
            killed.append(model._learners.processes[0])
            os.kill(killed[0], signal.SIGKILL)
        return real(*known)

    monkeypatch.setattr(learners, "SocketGroup", meet)
    monkeypatch.setattr(learners, "PATIENCE", 3 * PATIENCE)
    began = time.monotonic()
    with pytest.warns(RuntimeWarning, match="a learner is gone"):
        model._learners.begin(model.learner)
    assert time.monotonic() < began + PATIENCE
    assert model._learners.restarts == len(killed) == 1
    steps = model.learner.steps
    model.learn(64, reset_num_timesteps=False)
    assert model.learner.steps > steps
    model._learners.close()
