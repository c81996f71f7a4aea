"""Each silent trap is warned of once, with the way out; ordinary programs are not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import DQN, PPO, SAC
from polyak import warning as advice
from polyak.callbacks.evaluating import EvalCallback
from polyak.callbacks.saving import CheckpointCallback
from polyak.envs import DummyVecEnv, VecNormalize, make_vec_env, sync_envs_normalization
from polyak.evaluation.in_environments import evaluate_policy
from tests.worlds import World

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
ON: dict[str, Any] = {**SMALL, "n_steps": 16, "batch_size": 16, "n_epochs": 1}


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    advice.forget()
    yield
    advice.forget()


def messages(record: list[warnings.WarningMessage], part: str) -> list[str]:
    return [str(warning.message) for warning in record if part in str(warning.message)]


def test_load_on_a_model_returns_another_one(tmp_path: Path) -> None:
    trained = PPO("MlpPolicy", "CartPole-v1", seed=1, **ON)
    trained.save(tmp_path / "m.zip")
    other = PPO("MlpPolicy", "CartPole-v1", seed=2, **ON)
    before = other.policy.parameters_to_vector()
    with pytest.warns(UserWarning, match="load.. returns a new model.*set_parameters"):
        loaded = other.load(tmp_path / "m.zip")
    assert np.array_equal(other.policy.parameters_to_vector(), before)
    assert np.array_equal(loaded.policy.parameters_to_vector(), trained.policy.parameters_to_vector())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load(tmp_path / "m.zip")  # said once
        advice.forget()
        PPO.load(tmp_path / "m.zip")


@pytest.mark.parametrize(("bound", "warned"), [(1000, 1), (0.001, 1), (1, 0), (2, 0)])
def test_actions_of_an_unusual_scale(bound: float, warned: int) -> None:
    env = World(action_space=gym.spaces.Box(-bound, bound, (1,)))
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        PPO("MlpPolicy", env, **ON)
    assert len(messages(record, "RescaleAction")) == warned
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SAC("MlpPolicy", env, buffer_size=10, **SMALL)  # scales actions by itself


@pytest.mark.parametrize(("n_envs", "gradient_steps", "warned"), [(4, 1, 1), (4, -1, 0), (4, 4, 0), (1, 1, 0)])
def test_fewer_updates_with_more_environments(n_envs: int, gradient_steps: int, warned: int) -> None:
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        DQN("MlpPolicy", make_vec_env("CartPole-v1", n_envs), gradient_steps=gradient_steps, buffer_size=50, **SMALL)
    assert len(messages(record, "gradient_steps=-1")) == warned


def test_callbacks_that_count_calls_and_never_act(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 4), **ON)
    with pytest.warns(UserWarning, match="counts calls.*n_envs=4.*unit='timesteps'"):
        model.learn(64, CheckpointCallback(60, str(tmp_path)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advice.forget()
        evaluation = EvalCallback(
            make_vec_env("CartPole-v1", 1), eval_freq=max(64 // 4, 1), n_eval_episodes=1, verbose=0
        )
        model.learn(64, [CheckpointCallback(64, str(tmp_path), unit="timesteps"), evaluation])


def test_evaluation_without_the_normalisation_of_training(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")])), **ON).learn(16)
    plain = make_vec_env("CartPole-v1", 1)
    with pytest.warns(UserWarning, match="learned under VecNormalize, but env does not normalise"):
        evaluate_policy(model, plain, n_eval_episodes=1)
    model.save(tmp_path / "m.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advice.forget()
        same = VecNormalize(make_vec_env("CartPole-v1", 1), training=False, norm_reward=False)
        sync_envs_normalization(model.get_env(), same)
        evaluate_policy(model, same, n_eval_episodes=1)
        evaluate_policy(PPO.load(tmp_path / "m.zip"), plain, n_eval_episodes=1)  # normalises by itself
        evaluate_policy(PPO("MlpPolicy", "CartPole-v1", **ON), plain, n_eval_episodes=1)


def test_a_batch_larger_than_the_buffer_repeats_transitions() -> None:
    with pytest.warns(UserWarning, match="buffer_size=10 holds fewer transitions than batch_size=64"):
        SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, batch_size=64, **SMALL).learn(1)
