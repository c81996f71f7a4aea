"""Trainings that reach what RLlib's own tests ask for, in no more steps, with nothing but this process."""

from __future__ import annotations

from typing import Any

import pytest

from polyak.scale import APPOConfig, DQNConfig, IMPALAConfig, PPOConfig

pytestmark = pytest.mark.learn


def reaches(config: Any, goal: float, within: int) -> float:
    """The mean return of the latest 100 episodes, once it has reached the goal or the steps are over."""
    with config.build() as algo:
        while True:
            result = algo.train()
            score = result["env_runners"].get("episode_return_mean", -float("inf"))
            if score >= goal or result["num_env_steps_sampled_lifetime"] >= within:
                return score


@pytest.mark.parametrize("seed", range(3))
def test_ppo_on_cart_pole(seed: int) -> None:
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=8)
        .training(lr=1e-3, train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=10)
        .training(lambda_=0.95, vf_clip_param=None, grad_clip=0.5, kl_target=0.02)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .debugging(seed=seed)
    )
    assert reaches(config, 450, within=150_000) >= 450


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("config", "within"), [(IMPALAConfig, 1_000_000), (APPOConfig, 500_000)])
def test_impala_and_appo_on_cart_pole(config: Any, within: int, seed: int) -> None:
    config = (
        config()
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=10)
        .training(lr=[[0, 1e-3], [within, 1e-5]], vf_loss_coeff=0.05, entropy_coeff=0.0)
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "vf_share_layers": False})
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=5_000)
        .debugging(seed=seed)
    )
    if isinstance(config, APPOConfig):
        config.training(target_network_update_freq=0.25, lambda_=0.99)  # it follows every 4 updates
    assert reaches(config, 450, within) >= 450


@pytest.mark.parametrize("seed", range(3))
def test_dqn_on_cart_pole(seed: int) -> None:
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .training(lr=5e-4, n_step=(2, 5), epsilon=[[0, 1.0], [10_000, 0.02]])
        .rl_module(model_config={"fcnet_hiddens": [256], "fcnet_activation": "linear"})
        .debugging(seed=seed)
    )
    assert reaches(config, 450, within=150_000) >= 450
