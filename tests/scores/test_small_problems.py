"""Every algorithm on problems with a known answer: seconds each, seeded, and wrong mathematics fails them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import polyak
from polyak.envs.testing import IdentityEnv, IdentityEnvBox, IdentityEnvMultiBinary, IdentityEnvMultiDiscrete
from polyak.noise import NormalActionNoise
from tests.pairs import one_of_each

from .small_envs import Corridor, OneState, Panel

ON_POLICY: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 128, "batch_size": 64, "learning_rate": 3e-3, "n_epochs": 5},
    "A2C": {"n_steps": 8, "learning_rate": 2e-3, "ent_coef": 0.02},
}
OFF_POLICY: dict[str, dict[str, Any]] = {
    "learning_starts": 100,
    "batch_size": 64,
    "buffer_size": 10_000,
    "learning_rate": 3e-3,
    "policy_kwargs": {"net_arch": [32, 32]},
}
DQN: dict[str, Any] = {**OFF_POLICY, "train_freq": 2, "target_update_interval": 50, "exploration_fraction": 0.5}
CONTINUOUS = ("SAC", "SACV", "CrossQ", "TD3", "DDPG", "SD3")
#: One of each loop is tried at once, the others with the slow checks; their losses are tested one by one.
EACH = one_of_each(["PPO", "A2C", "DQN", "DiscreteSAC", *CONTINUOUS], "PPO", "DQN")
DISCRETE = ("DQN", "DiscreteSAC")
SOFT = ("SAC", "SACV", "CrossQ", "DiscreteSAC")


def settings_for(algo: str, continuous: bool) -> dict[str, Any]:
    """Settings under which ``algo`` solves the problems of this file."""
    if algo in ON_POLICY:
        return deepcopy(ON_POLICY[algo])
    if algo == "DQN":
        return deepcopy(DQN)
    if algo == "DiscreteSAC":
        return {**deepcopy(OFF_POLICY), "tau": 0.02, "train_freq": 2}
    noise = {} if algo in SOFT else {"action_noise": NormalActionNoise(np.zeros(1), np.ones(1))}
    own = {"policy_delay": 1} if algo == "CrossQ" else {"tau": 0.02}
    samples = {"n_noise_samples": 10, "beta": 1.0} if algo == "SD3" else {}
    return {**deepcopy(OFF_POLICY), **own, **noise, **samples}


def mean_return(model: Any, env: gym.Env, episodes: int = 10) -> float:
    """Mean return of deterministic episodes."""
    total = 0.0
    for episode in range(episodes):
        observation, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total / episodes


@pytest.mark.parametrize("algo", one_of_each(["PPO", "A2C", *DISCRETE], "PPO"))
def test_learns_to_name_a_discrete_state(algo: str) -> None:
    env = IdentityEnv(4, ep_length=50)
    untrained = getattr(polyak, algo)("MlpPolicy", env, seed=3, **settings_for(algo, False), gamma=0.4)
    assert mean_return(untrained, env) < 35
    assert mean_return(untrained.learn(1_200 if algo == "DiscreteSAC" else 2_500), env) >= 47.5


@pytest.mark.parametrize(
    ("algo", "env_class"),
    [
        ("PPO", IdentityEnvMultiDiscrete),
        pytest.param("A2C", IdentityEnvMultiBinary, marks=pytest.mark.slow),
        pytest.param("PPO", IdentityEnvMultiBinary, marks=pytest.mark.slow),
        pytest.param("A2C", IdentityEnvMultiDiscrete, marks=pytest.mark.slow),
    ],
)
def test_learns_structured_discrete_actions(algo: str, env_class: Any) -> None:
    env = env_class(2, ep_length=50)
    model = getattr(polyak, algo)("MlpPolicy", env, seed=1, **settings_for(algo, False), gamma=0.4).learn(2_500)
    assert mean_return(model, env) >= 47.5


@pytest.mark.slow  # with seconds of training; tests/fields/test_composed_spaces.py learns several choices at once
def test_learns_which_button_and_how_far_a_lever_at_once() -> None:
    options = {"n_steps": 256, "batch_size": 128, "n_epochs": 5, "gamma": 0.0, "learning_rate": 3e-3}
    untrained = polyak.PPO("MlpPolicy", Panel(), seed=0, **options)
    assert mean_return(untrained, Panel()) < 8
    assert mean_return(untrained.learn(12_000), Panel()) >= 15


@pytest.mark.parametrize("algo", one_of_each(["PPO", "A2C", *CONTINUOUS], "PPO", "SAC"))
def test_learns_to_name_a_continuous_state(algo: str) -> None:
    env = IdentityEnvBox(eps=0.3, ep_length=50)
    steps = 5_000 if algo in ON_POLICY else 800 if algo == "CrossQ" else 500
    settings = {**settings_for(algo, True), "gamma": 0.4}
    model = getattr(polyak, algo)("MlpPolicy", env, seed=1, **settings).learn(steps)
    assert mean_return(model, env) >= 42.5


@pytest.mark.parametrize("algo", one_of_each(["PPO", "A2C", *DISCRETE, *CONTINUOUS], "PPO", "DQN"))
def test_carries_value_back_through_a_corridor(algo: str) -> None:
    continuous = algo in CONTINUOUS
    env = Corridor(continuous)
    settings = {**settings_for(algo, continuous), "gamma": 0.97}
    if algo in ("PPO", "A2C", *SOFT):
        settings["ent_coef"] = 0.02
    if continuous:
        settings |= {"learning_starts": 500, "learning_rate": 1e-3}  # enough random walks that some reach the end
    model = getattr(polyak, algo)("MlpPolicy", env, seed=2, **settings).learn(5_000 if algo in ON_POLICY else 1_200)
    assert mean_return(model, env) == pytest.approx(1.0)


def learnt_value(model: Any) -> float:
    """What the model thinks its only state is worth under its own deterministic action."""
    observation, _ = model.policy.obs_to_tensor(np.ones((1, 1), np.float32))
    with torch.no_grad():
        if hasattr(model.policy, "predict_values"):
            return float(model.policy.predict_values(observation))
        if hasattr(model.policy, "q_net"):
            return float(model.policy.q_net(observation).max())
        action = torch.as_tensor(model.predict(np.ones((1, 1), np.float32), deterministic=True)[0])
        if hasattr(model.policy, "pairs"):
            return float(model.policy.pairs.q_values(observation, action).mean())
        if isinstance(model, polyak.DiscreteSAC):
            return float(model.policy.critic.q_values(observation)[:, 0, int(action)].mean())
        return float(torch.cat(model.policy.critic(observation, action), dim=1).mean())


@pytest.mark.parametrize("algo", EACH)
@pytest.mark.parametrize(("truncates", "value"), [(False, 1.0), (True, 2.0)], ids=["terminates", "truncates"])
def test_bootstraps_truncation_and_only_truncation(algo: str, truncates: bool, value: float) -> None:
    continuous = algo in CONTINUOUS
    settings = {**settings_for(algo, continuous), "gamma": 0.5}
    if algo in SOFT:
        settings["ent_coef"] = 1e-6
    env = OneState(truncates, continuous)
    model = getattr(polyak, algo)("MlpPolicy", env, seed=0, **settings).learn(3_000 if algo in ON_POLICY else 600)
    assert learnt_value(model) == pytest.approx(value, abs=0.12)
