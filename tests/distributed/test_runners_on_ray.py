"""Runners in processes of their own: equal to runners here, and replaced when they die."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import polyak
from tests.compat.rllib_face.on_ray import session_of
from tests.distributed.test_runners import CASES, TURNS, Kept, carts, weights
from tests.processes import Killing, assert_gone

session = session_of(8)


@pytest.mark.slow  # the suite has runners here, by a Ray that is made up, and interrupted ones by Ray
@pytest.mark.parametrize("case", CASES)
def test_training_is_equal_to_that_with_runners_here(case: str) -> None:
    here, there = Kept(), Kept()
    one = CASES[case](n_runners=2, transport="local").learn(150, here)
    other = CASES[case](n_runners=2).learn(150, there)
    np.testing.assert_array_equal(here.rewards, there.rewards)
    np.testing.assert_array_equal(weights(one), weights(other))
    other.env.close()
    assert_gone(other.env.processes)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ppo", "her"])
def test_a_killed_runner_is_replaced(case: str) -> None:
    kill = Killing(lambda model: model.env.processes[1], after=100)
    model = CASES[case](n_runners=2)
    with pytest.warns(RuntimeWarning, match="runner 2 of 2 is gone"):
        model.learn(400, kill)
    assert model.num_timesteps >= 400
    assert model.env.workers.restarts == 1
    while model.env.absent:  # meanwhile the first runner makes all steps
        model.learn(100, reset_num_timesteps=False)
    assert model.env.processes[1] != kill.killed
    assert np.isfinite(weights(model)).all()
    model.env.close()


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_killed_runner_that_collects_by_itself_is_replaced(asynchronous: bool) -> None:
    kill = Killing(lambda model: model.env.processes[1], after=100)
    model: Any = polyak.IMPALA("MlpPolicy", carts, n_runners=2, **{**TURNS, "asynchronous": asynchronous})

    def learn() -> None:
        while not model.num_timesteps or not model.env.workers.restarts:
            model.learn(320, kill, reset_num_timesteps=False)

    with pytest.warns(RuntimeWarning, match="runner 2 of 2 is gone"):
        learn()
    while model.env.absent:  # meanwhile the first runner makes all steps
        model.learn(100, reset_num_timesteps=False)
    assert len(model.env.get_state()["runners"]) == 2  # asked while rollouts are under way
    assert model.env.processes[1] != kill.killed
    assert np.isfinite(weights(model)).all()
    model.env.close()


class Waits(gym.Wrapper[Any, Any, Any, Any]):
    """Does not begin before there is a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.path = path

    def step(self, action: Any) -> Any:
        while not self.path.exists():
            time.sleep(0.01)
        return super().step(action)


@pytest.mark.slow
def test_what_a_runner_has_finished_is_learned_from_without_the_others(tmp_path: Path) -> None:
    """The second one cannot finish anything before the first has finished five rollouts."""
    path, taken = tmp_path / "begin", []

    def look(names: dict[str, Any], _: Any) -> bool:
        runner = names["self"].runner
        if runner.row == 0:
            taken.append(runner.in_hand.worker)
            columns = runner.in_hand.chunk.columns
            mapped.append(not columns["rewards"].flags.writeable)
            read.append(names["self"].rollout_buffer.rewards.ctypes.data == columns["rewards"].ctypes.data)
        if len(taken) == 5:
            path.touch()
        return 1 not in taken

    mapped: list[bool] = []
    read: list[bool] = []
    options: Any = {**TURNS, "asynchronous": True, "n_runners": 2}
    model = polyak.IMPALA("MlpPolicy", lambda index: Waits(path if index else tmp_path), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays that it must not write to
        model.learn(10_000, look)
    assert taken[:5] == [0] * 5
    assert taken[-1] == 1
    assert all(mapped), "what Ray has mapped is not copied"
    assert all(read)
    assert model.env is not None
    model.env.close()


@pytest.mark.slow
def test_an_actor_that_acts_ahead_has_runners_too() -> None:
    model = polyak.IMPALA("MlpPolicy", "CartPole-v1", n_runners=2, n_steps=16, seed=0, device="cpu")
    model.learn(600)
    assert model.num_timesteps >= 600
    assert len(model.ep_info_buffer) > 10
    assert model.env is not None
    model.env.close()


@pytest.mark.slow
def test_a_runner_that_cannot_be_made_ends_the_training_with_the_reason() -> None:
    """Another one in its place would fail alike."""

    def broken() -> Any:
        raise OSError("there is no licence for this simulator")

    with pytest.raises(RuntimeError, match="a runner could not be made: .*no licence for this simulator"):
        polyak.PPO("MlpPolicy", broken, n_runners=2, n_steps=32, batch_size=32, device="cpu")


@pytest.mark.slow
def test_training_goes_on_after_an_interruption(tmp_path: Path) -> None:
    """One runner has answered, and the other has not."""
    path = tmp_path / "begin"
    options: Any = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "device": "cpu"}
    model = polyak.PPO("MlpPolicy", lambda index: Waits(path if index else tmp_path), n_runners=2, **options)
    workers: Any = model.env.workers
    own = workers.answers

    def interrupted(wait: bool = True) -> Any:
        if any(method == "collect" for _, method, _ in own(wait)):
            raise KeyboardInterrupt
        return []

    workers.answers = lambda wait=True: own(wait) if not model.env.is_asked("collect") else interrupted(wait)
    with pytest.raises(KeyboardInterrupt):
        model.learn(64)
    del workers.answers
    path.touch()
    model.learn(64)
    assert model.num_timesteps == 64
    model.env.close()


@pytest.mark.slow
def test_a_runner_whose_environments_hang_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "begin"
    options: Any = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "device": "cpu", "runner_timeout": 5.0}
    model = polyak.PPO("MlpPolicy", lambda index: Waits(path if index else tmp_path), n_runners=2, **options)
    message = "runner 2 of 2 is gone: the environments of runner 2 gave no answer to step.. within runner_timeout=5 sec"
    with pytest.warns(RuntimeWarning, match=message):
        model.learn(64)
    assert model.num_timesteps == 64
    model.env.close()
