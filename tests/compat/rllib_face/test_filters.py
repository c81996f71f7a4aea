"""Running statistics that several runners share: exact, whoever has seen what, and used wherever the policy acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import polyak
from polyak.compat.rllib_face import DQNConfig, MeanStdFilter, PPOConfig
from polyak.compat.rllib_face.connectors.given import filter_of
from polyak.compat.rllib_face.filters import FilteredEnv, filter_around
from polyak.distributed.statistics import SharedStatistics, count_fresh, fresh_in, moments_in, report_of, take_moments
from polyak.envs import DummyVecEnv, VecNormalize, make_env
from polyak.hyperparameters.declaration import HyperparameterError


def pendulums(number: int, seed: int, rewards: bool = True) -> FilteredEnv:
    inner = DummyVecEnv([lambda: gym.make("Pendulum-v1")] * number)
    env = FilteredEnv(inner, MeanStdFilter(rewards=rewards), 0.9, training=True)
    env.seed(seed)
    assert isinstance(env, FilteredEnv)
    count_fresh(env)
    return env


def walked(env: FilteredEnv, steps: int, seen: list[np.ndarray], returns: list[np.ndarray]) -> None:
    for _ in range(steps):
        env.step(np.ones((env.num_envs, 1), np.float32))
        seen.append(env.old_obs)
        returns.append(env.returns.copy())


@pytest.mark.parametrize("broadcast", [True, False])
def test_what_several_have_seen_is_one_pass_over_all_of_it(broadcast: bool) -> None:
    """Three runners of different sizes bring nine fragments; each begins with what the others knew, or does not."""
    runners = [pendulums(number, 7 * number) for number in (1, 2, 3)]
    own = FilteredEnv(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), MeanStdFilter(), 0.9, training=False)
    shared = SharedStatistics(own, sends=broadcast)
    seen: list[np.ndarray] = []
    returns: list[np.ndarray] = []
    for env in runners:
        env.reset()
        seen.append(env.old_obs)
    for part in range(3):
        answers = []
        for env in runners:
            report = shared.request()
            assert (report is None) is not broadcast
            if report is not None:
                take_moments(env, report)
            walked(env, 4 + part, seen, returns)
            answers.append(report_of(env))
        shared.take(answers)
    rows = np.concatenate(seen)
    guess = 1e-4  # the weight of mean 0 and variance 1, before anything was seen
    total = len(rows) + guess
    mean = rows.sum(0, dtype=np.float64) / total
    variance = ((rows - mean) ** 2).sum(0) / total + guess / total * (1 + mean**2)
    moments = moments_in(own)
    bound = 16 * np.finfo(np.float64).eps * len(rows)
    assert moments["obs_rms"]["count"] == pytest.approx(total, abs=1e-9)
    np.testing.assert_allclose(moments["obs_rms"]["mean"], mean, rtol=bound, atol=bound)
    np.testing.assert_allclose(moments["obs_rms"]["var"], variance, rtol=bound * 1e3, atol=bound)
    rows = np.concatenate(returns)
    total = len(rows) + guess
    assert moments["ret_rms"]["count"] == pytest.approx(total, abs=1e-9)
    np.testing.assert_allclose(moments["ret_rms"]["mean"], rows.sum() / total, rtol=1e-9)
    assert all(count["count"] == 0 for env in runners for count in fresh_in(env).values()), "sent once"


def test_one_alone_is_believed_to_the_bit_and_unmerged_ones_too() -> None:
    env = pendulums(2, 1)
    env.reset()
    walked(env, 5, [], [])
    own = FilteredEnv(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), MeanStdFilter(), 0.9, training=False)
    SharedStatistics(own, merges=False).take([report_of(env)])
    np.testing.assert_array_equal(moments_in(own)["obs_rms"]["var"], moments_in(env)["obs_rms"]["var"])
    assert SharedStatistics(own, sends=False).request() is None


def test_the_class_itself_stands_for_a_filter_with_its_defaults() -> None:
    assert filter_of(MeanStdFilter) == filter_of(lambda env, spaces, device: MeanStdFilter()) == MeanStdFilter()


# -- in one process ----------------------------------------------------------------------------------------------------


def config(cls: Any = PPOConfig, **how: Any) -> Any:
    made = cls().environment("Pendulum-v1" if cls is PPOConfig else "CartPole-v1").debugging(seed=1)
    made.env_runners(env_to_module_connector=lambda env, spaces, device: MeanStdFilter(**how))
    made.framework(torch_compile_learner=False).rl_module(model_config={"fcnet_hiddens": [8]})
    if cls is PPOConfig:
        made.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    else:
        made.training(num_steps_sampled_before_learning_starts=20).reporting(min_sample_timesteps_per_iteration=40)
    return made


def test_it_is_that_of_the_plain_api() -> None:
    with config().build() as algo:
        algo.train()
        plain = algo.config.plain()
        env = DummyVecEnv([lambda: gym.wrappers.RescaleAction(make_env("Pendulum-v1"), np.float32(-1), np.float32(1))])
        other = polyak.PPO(plain.policy, VecNormalize(env, norm_reward=False), **plain.kwargs).learn(64)
        for ours, theirs in zip(algo.model.policy.parameters(), other.policy.parameters(), strict=True):
            assert ours.equal(theirs)


@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig])
def test_all_that_act_see_what_was_learned_from(cls: Any, tmp_path: Path) -> None:
    with config(cls).build() as algo:
        algo.train()
        known = filter_around(algo.model.get_env())
        assert known is not None
        observation = algo.observation_space.sample()
        expected = algo.model.predict(known.normalize_obs(observation), deterministic=True)[0]
        np.testing.assert_array_equal(algo._in_units(expected), algo.compute_single_action(observation))
        algo.evaluate()
        played = filter_around(algo._evaluators.env)
        assert played is not None
        assert moments_in(played)["obs_rms"]["count"] == moments_in(known)["obs_rms"]["count"], "and it learns nothing"
        before = moments_in(known)["obs_rms"]
        algo.save_to_path(tmp_path)
        algo.train()
        algo.restore_from_path(tmp_path)
        again = filter_around(algo.model.get_env())
        assert again is not None
        np.testing.assert_array_equal(moments_in(again)["obs_rms"]["var"], before["var"])
        assert again.training


def test_what_is_no_filter_is_refused() -> None:
    assert filter_of(None) is None
    assert filter_of(lambda env: [MeanStdFilter(5.0)]) == MeanStdFilter(5.0)
    for connector in ("MeanStdFilter", lambda env, spaces, device: "filter", [MeanStdFilter(), MeanStdFilter()]):
        with pytest.raises(HyperparameterError, match="env_to_module_connector"):
            filter_of(connector)
    with pytest.raises(HyperparameterError, match="clip_by_value"):
        filter_of(MeanStdFilter(0.0))
    made = config(DQNConfig, rewards=True).training(replay_buffer_config={"num_replay_buffer_shards": 1})
    with pytest.raises(HyperparameterError, match="shards sum rewards"):
        made.validate()
