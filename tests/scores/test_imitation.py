"""``make learn``: imitation from few episodes, beginning with policies that can do nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import AIRL, GAIL, PPO, SAC, DAgger
from polyak.envs import FixedHorizon, make_vec_env, with_reward
from polyak.evaluation.in_environments import evaluate_policy
from polyak.experience import Dataset, collect

from .recorded import balancer

pytestmark = pytest.mark.learn

STEPS = {False: 150_000, True: 250_000}
"""Where episodes go on after an early end, most steps teach nothing at first."""
SEEDS = (1, 2, 4)
"""Untrained policies of others balance for a while already."""
GENERATOR = {"n_steps": 256, "batch_size": 256, "n_epochs": 10, "gae_lambda": 0.9, "gamma": 0.98, "learning_rate": 1e-3}


def cartpole(fixed: bool = False) -> gym.Env[Any, Any]:
    """Episodes of 200 steps in any case, if they are ``fixed``."""
    env = gym.make("CartPole-v1")
    return FixedHorizon(env, 200) if fixed else env


@lru_cache
def shown(fixed: bool = False) -> Dataset:
    """10 episodes of the expert, who wavers now and then: of one who never does there is little to see."""
    return collect(cartpole(fixed), balancer(), 5000, whole_episodes=True, seed=100)


def score(model: Any, env: str = "CartPole-v1", episodes: int = 20) -> float:
    """Mean return of deterministic episodes, of the environment's own rewards."""
    return float(evaluate_policy(model, make_vec_env(env, n_envs=1, seed=10_000), episodes)[0])


def reached(name: str, seed: int, before: float, after: float, wanted: float) -> None:
    print(f"{name} seed {seed}: {before:.1f} -> {after:.1f}")
    assert after >= wanted


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fixed", [False, True], ids=["ends", "fixed"])
def test_gail_balances(fixed: bool, seed: int) -> None:
    env = make_vec_env(lambda: cartpole(fixed), n_envs=8, seed=seed)
    data = shown(fixed)
    model = GAIL("MlpPolicy", env, demonstrations=data, generator_kwargs=GENERATOR, seed=seed, device="cpu")
    before = score(model, episodes=5)
    assert before < 50
    reached("GAIL", seed, before, score(model.learn(STEPS[fixed])), 475)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fixed", [False, True], ids=["ends", "fixed"])
def test_airl_balances_and_what_it_learned_teaches_another(fixed: bool, seed: int) -> None:
    env = make_vec_env(lambda: cartpole(fixed), n_envs=8, seed=seed)
    data = shown(fixed)
    model = AIRL("MlpPolicy", env, demonstrations=data, generator_kwargs=GENERATOR, seed=seed, device="cpu")
    before = score(model, episodes=5)
    assert before < 50
    reached("AIRL", seed, before, score(model.learn(STEPS[fixed])), 475)
    # what is learned is known up to a constant, which counts where episodes may end
    pupils = with_reward(make_vec_env(lambda: cartpole(fixed=True), n_envs=8, seed=seed), model.reward)
    pupil = PPO("MlpPolicy", pupils, seed=seed, device="cpu", **GENERATOR)
    before = score(pupil, episodes=5)
    assert before < 50
    reached("PPO on AIRL's reward", seed, before, score(pupil.learn(250_000)), 400)


@pytest.mark.parametrize("seed", SEEDS)
def test_dagger_balances_after_ten_episodes(seed: int) -> None:
    options = {"demonstrations": shown(), "episodes_per_round": 2, "beta": "exponential", "beta_decay": 0.5}
    model = DAgger("MlpPolicy", "CartPole-v1", expert=balancer(), seed=seed, device="cpu", **options)
    before = score(model, episodes=5)
    assert before < 150
    reached("DAgger", seed, before, score(model.learn(6_000)), 475)


@lru_cache
def swing_ups() -> Dataset:
    """20 episodes of one that swings the pendulum up."""
    expert = SAC("MlpPolicy", "Pendulum-v1", learning_rate=1e-3, seed=0, device="cpu").learn(10_000)
    data = collect("Pendulum-v1", expert, 4000, deterministic=True, whole_episodes=True, seed=100)
    assert np.mean(data.returns) > -250
    return data


@pytest.mark.parametrize("seed", SEEDS)
def test_gail_swings_up(seed: int) -> None:
    options = {"n_steps": 256, "batch_size": 256, "n_epochs": 10, "gamma": 0.95, "gae_lambda": 0.95, "use_sde": True}
    env = make_vec_env("Pendulum-v1", n_envs=8, seed=seed)
    model = GAIL(
        "MlpPolicy",
        env,
        demonstrations=swing_ups(),
        generator_kwargs={**options, "learning_rate": 1e-3, "sde_sample_freq": 4},
        reward_form="logit",
        seed=seed,
        device="cpu",
    )
    before = score(model, "Pendulum-v1")
    assert before < -900
    reached("GAIL on Pendulum", seed, before, score(model.learn(250_000), "Pendulum-v1"), -300)
