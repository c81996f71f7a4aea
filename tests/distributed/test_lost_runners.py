"""Runners that are lost while they collect: others make their part, and another one takes their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyak
from polyak.distributed.ray_workers import Tolerance
from polyak.parts.asynchronous import OlderRollouts
from tests.compat.rllib_face.conftest import fake as fake
from tests.compat.rllib_face.fake_ray import FakeRay
from tests.distributed.test_runners import REPLAY, ROLLOUT, TURNS, carts

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_steps:UserWarning")


def ppo(**options: Any) -> Any:
    return polyak.PPO("MlpPolicy", carts, **ROLLOUT, **options)


def dqn(**options: Any) -> Any:
    return polyak.DQN("MlpPolicy", carts, **REPLAY, train_freq=3, **options)


def slow_to_return(model: Any) -> None:
    """Let no other take the place of one that is lost."""
    model.env.workers.renew_due = lambda wait=True: None


@pytest.mark.parametrize("make", [ppo, dqn])
def test_the_others_make_the_part_of_one_that_is_lost(fake: FakeRay, make: Any) -> None:
    model = make(n_runners=2).learn(100)
    slow_to_return(model)
    fake.actors[1].die()
    cuts: list[int] = []
    model.runner.on_loss = lambda: cuts.append(model.num_timesteps)
    with pytest.warns(RuntimeWarning, match="runner 2 of 2 is gone.*Another one takes its place"):
        model.learn(100, reset_num_timesteps=False)
    assert model.env.absent == {1}
    assert [worker for worker, _ in model.env.made_by] == [0, 0]
    assert cuts, "no n-step return and no hindsight goal reaches across"
    del model.env.workers.renew_due
    model.learn(200, reset_num_timesteps=False)
    assert model.env.absent == set()
    assert model.env.made_by == [(0, 0), (1, 1)]
    assert model.env.workers.restarts == 1


def test_rows_of_one_that_is_lost_are_successive_steps_of_another(fake: FakeRay) -> None:
    """Of the first runner's two environments, first in their own columns, then in those of the second's."""
    model = ppo(n_runners=2)
    model.learn(1)
    slow_to_return(model)
    fake.actors[1].die()
    with pytest.warns(RuntimeWarning, match="is gone"):
        model.learn(1, reset_num_timesteps=False)
    rows = model.rollout_buffer.observations.reshape(4, 16, 4)  # one environment after another
    np.testing.assert_array_equal(rows[2:, 0], model.runner.obs[:2], "where the first part has ended")
    assert not np.array_equal(rows[2:], rows[:2])


def test_the_only_one_is_waited_for(fake: FakeRay) -> None:
    model = dqn(n_runners=1).learn(60)
    fake.actors[0].die()
    with pytest.warns(RuntimeWarning, match="runner 1 of 1 is gone"):
        model.learn(60, reset_num_timesteps=False)
    assert model.num_timesteps >= 120
    assert model.env.made_by == [(0, 1)]


def test_one_that_is_not_replaced_ends_the_training_or_does_not(fake: FakeRay) -> None:
    model = ppo(n_runners=2).learn(1)
    model.env.workers.tolerance = Tolerance(shrinks=True)
    fake.actors[0].die()
    with pytest.warns(RuntimeWarning, match="The others continue"):
        model.learn(200, reset_num_timesteps=False)
    assert model.env.absent == {0}
    fake.actors[1].die()
    with pytest.raises(RuntimeError, match="It was the last one"):
        model.learn(200, reset_num_timesteps=False)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_one_that_collects_by_itself_is_not_waited_for(fake: FakeRay, asynchronous: bool) -> None:
    options = {**TURNS, "asynchronous": asynchronous, "n_runners": 2}
    model: Any = polyak.IMPALA("MlpPolicy", carts, **options).learn(100)
    slow_to_return(model)
    fake.actors[1].die()
    with pytest.warns(RuntimeWarning, match="runner 2 of 2 is gone"):
        model.learn(200, reset_num_timesteps=False)
    assert model.env.absent == {1}
    before = model.num_timesteps
    del model.env.workers.renew_due
    seen: list[int] = []
    model.learn(400, lambda names, _: bool(seen.append(model.runner.in_hand.worker) or True), reset_num_timesteps=False)
    assert model.num_timesteps >= before + 400
    assert set(seen) == {0, 1}


def test_one_that_acts_ahead_may_have_several_requests(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OlderRollouts, "requests_per_runner", 3)
    most: list[int] = []
    options = {**TURNS, "asynchronous": True, "queue_size": 100, "n_runners": 2}
    model: Any = polyak.IMPALA("MlpPolicy", carts, **options)
    model.learn(200, lambda *_: bool(most.append(model.env.workers.waiting_for(0)) or True))
    assert max(most) > 1
    assert max(most) <= 3


def test_a_gradient_step_may_be_made_of_rollouts_of_several_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OlderRollouts, "per_batch", 2)
    model: Any = polyak.IMPALA("MlpPolicy", carts, **TURNS, n_runners=2, transport="local")
    shapes: list[Any] = []
    step = model.learner.gradient_step
    model.learner.gradient_step = lambda unroll: shapes.append(tuple(unroll.trajectory.rewards.shape)) or step(unroll)
    model.learn(4 * 4 * model.n_steps)
    assert shapes == [(model.n_steps, 4)] * 4
    assert model.num_timesteps == 4 * 4 * model.n_steps
