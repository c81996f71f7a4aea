"""Environments with other rewards, and episodes of a fixed length."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak.envs import (
    FixedHorizon,
    LearnedReward,
    Monitor,
    VecLearnedReward,
    VecNormalize,
    check_env,
    make_vec_env,
    with_reward,
)
from tests.worlds import World


class Counter(World):
    """Counts its steps, and ends after 3 of them: in a terminal state, or cut short."""

    observation_space, length, pays = gym.spaces.Box(-9, 9, (1,)), 3, 1.0

    def look(self) -> np.ndarray:
        return np.full(1, self.t, np.float32)


def code(obs: Any, actions: Any, then: Any, ends: Any) -> np.ndarray:
    """A number that distinguishes all four."""
    return 1000 * np.ravel(ends) + 100 * np.ravel(then) + 10 * np.ravel(obs) + np.ravel(actions)


@pytest.mark.parametrize("truncates", [False, True])
def test_the_reward_is_asked_about_what_happened(truncates: bool) -> None:
    expected = [101.0, 211.0, 321.0 if truncates else 1321.0]
    env = with_reward(Counter(truncates=truncates), code)
    assert isinstance(env, LearnedReward)
    vector = with_reward(make_vec_env(lambda: Counter(truncates=truncates), n_envs=2), code)
    assert isinstance(vector, VecLearnedReward)
    for _ in range(2):  # episodes, the second after a reset of the vector's own
        env.reset()
        for reward in expected:
            _, found, _, _, info = env.step(1)
            assert found == reward
            assert info["true_reward"] == 1.0
    vector.reset()
    for reward in 2 * expected:
        _, rewards, _, infos = vector.step(np.ones(2, np.int64))
        assert rewards.tolist() == [reward, reward]
        assert vector.true_rewards.tolist() == [1.0, 1.0]
    assert infos[0]["episode"]["r"] == 3.0
    assert vector.ended == 4 * [sum(expected)]


def test_what_is_asked_later_is_the_same() -> None:
    vector = with_reward(make_vec_env(Counter, n_envs=2), code)
    vector.reset()
    vector.late = True
    for _ in range(4):
        assert vector.step(np.ones(2, np.int64))[1].tolist() == [0.0, 0.0]
    assert vector.owed()[:, 0].tolist() == [101.0, 211.0, 1321.0, 101.0]
    assert vector.settle()[:, 1].tolist() == [101.0, 211.0, 1321.0, 101.0]
    assert vector.ended == 2 * [1633.0]
    assert vector.returns.tolist() == [101.0, 101.0]
    assert len(vector.settle()) == 0


def test_beneath_a_normaliser_that_shares_its_statistics() -> None:
    env = VecNormalize(make_vec_env(Counter, n_envs=2))
    changed = with_reward(env, code)
    assert isinstance(changed, VecNormalize)
    assert changed.obs_rms is env.obs_rms
    changed.reset()
    changed.step(np.ones(2, np.int64))
    assert changed.get_original_reward().tolist() == [101.0, 101.0]
    assert env.ret_rms.count > 1
    assert isinstance(env.venv, type(make_vec_env(Counter)))  # the one given is as it was


def test_a_reward_that_is_no_function_is_refused() -> None:
    with pytest.raises(ValueError, match="reward=3 must be a function"):
        with_reward(Counter(), 3)  # type: ignore[arg-type]


def test_every_episode_lasts_equally_long() -> None:
    env = FixedHorizon(Counter(), 5)
    for _ in range(2):
        env.reset(seed=0)
        steps = [env.step(0) for _ in range(5)]
        assert [float(step[0][0]) for step in steps] == [1, 2, 3, 3, 3]
        assert [step[1] for step in steps] == [1, 1, 1, 0, 0]
        assert [step[2:4] for step in steps] == [(False, False)] * 4 + [(False, True)]
    short = FixedHorizon(Counter(), 2)
    short.reset()
    assert [short.step(0)[3] for _ in range(2)] == [False, True]
    check_env(FixedHorizon(gym.make("CartPole-v1"), 50))
    monitored = Monitor(FixedHorizon(gym.make("CartPole-v1"), 50))
    monitored.reset(seed=0)
    *_, info = [monitored.step(0) for _ in range(50)][-1]
    assert info["episode"]["l"] == 50
    assert info["episode"]["r"] < 15


def test_a_horizon_beyond_the_time_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="steps=501 exceeds the environment's own time limit of 500"):
        FixedHorizon(gym.make("CartPole-v1"), 501)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        FixedHorizon(Counter(), 0)
