"""Parts of a replay buffer in processes of their own: equal to parts here, and replaced when they die."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compat.rllib_face.on_ray import session_of
from tests.distributed.test_runners import weights
from tests.distributed.test_shards import CASES, assert_same_rows
from tests.processes import Killing, assert_gone

session = session_of(8)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_training_is_equal_to_that_with_shards_here(case: str) -> None:
    one = CASES[case](n_replay_shards=2, transport="local").learn(150)
    other = CASES[case](n_replay_shards=2, transport="ray").learn(150)
    np.testing.assert_array_equal(weights(one), weights(other))
    assert_same_rows(other, one)
    processes = other.replay_buffer.processes
    other.replay_buffer.close()
    assert_gone(processes)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["dqn", "here"])
def test_a_killed_shard_is_replaced(case: str) -> None:
    kill = Killing(lambda model: model.replay_buffer.processes[1], after=100)
    model = CASES[case](n_replay_shards=2, transport="ray")
    with pytest.warns(RuntimeWarning, match=r"replay shard 2 of 2 is gone.* [0-9]+ transitions are lost"):
        model.learn(240, kill)
    assert model.num_timesteps >= 240
    assert model.replay_buffer.workers.restarts == 1
    assert model.replay_buffer.processes[1] != kill.killed
    assert np.isfinite(weights(model)).all()
    lost, whole = model.replay_buffer._held[1], model.replay_buffer._held[0]
    assert 0 < lost < whole == model.num_timesteps // model.n_envs
    assert len(model.replay_buffer.contents()["rewards"]) == lost
    model.replay_buffer.close()
