"""SAC's settings do what they say: seen in the algorithm that a config builds, and in what it has done."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from polyak.compat.rllib_face import SACConfig
from polyak.experience.replay_buffer import ReplayBuffer


@pytest.fixture(scope="module")
def trained() -> Any:
    """An algorithm after 60 environment steps, and its result."""
    config = SACConfig().environment("Pendulum-v1").debugging(seed=0)
    config.training(
        actor_lr=[[0, 1e-3], [60, 1e-4]],
        critic_lr=2e-3,
        alpha_lr=3e-3,
        tau=0.02,
        initial_alpha=0.3,
        target_entropy=-2.5,
        twin_q=False,
        target_network_update_freq=4,
        n_step=2,
        gamma=0.9,
        num_steps_sampled_before_learning_starts=30,
        train_batch_size_per_learner=16,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500},
    )
    config.rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [6], "fcnet_activation": "relu"})
    config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=60)
    with config.build_algo() as algo:
        first = float(algo.model.learner.log_ent_coef.detach())
        targets = [p.clone() for p in algo.model.policy.critic_target.parameters()]
        yield algo, algo.train(), first, targets


def test_rates(trained: Any) -> None:
    algo, _, _, _ = trained
    rates = {name: float(one.param_groups[0]["lr"]) for name, one in algo.model.learner.optimizers.items()}
    assert rates == pytest.approx({"actor": 1e-4, "critic": 2e-3, "ent_coef": 3e-3}, rel=1e-5)


def test_temperature(trained: Any) -> None:
    algo, result, first, _ = trained
    assert first == pytest.approx(float(torch.tensor(0.3).log()))
    assert algo.model.learner.target_entropy == -2.5
    assert result["learners"]["default_policy"]["alpha_value"] != pytest.approx(0.3)


def test_networks(trained: Any) -> None:
    algo, _, _, _ = trained
    critic = algo.model.policy.critic
    assert len(critic.q_networks) == 1
    widths = [layer.out_features for layer in critic.q_networks[0] if isinstance(layer, nn.Linear)]
    assert widths == [8, 6, 1]


def test_steps(trained: Any) -> None:
    """A gradient step after each fragment of ``n_step`` steps, from the one with step 30 on; rows as they are."""
    algo, result, _, _ = trained
    model = algo.model
    assert result["num_env_steps_sampled_lifetime"] == 60
    assert model.learner.steps == (60 - 30) // 2 + 1
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == model.learner.steps * 16
    assert (model.gamma, model.n_steps, model.replay_buffer.buffer_size) == (0.9, 2, 500)
    assert isinstance(model.replay_buffer, ReplayBuffer)


def test_targets_follow(trained: Any) -> None:
    """Every 4 environment steps are every 2 gradient steps, at a rate of 0.02."""
    algo, _, _, targets = trained
    assert (algo.model.target_update_interval, algo.model.tau) == (2, 0.02)
    policy = algo.model.policy
    for before, after, online in zip(
        targets, policy.critic_target.parameters(), policy.critic.parameters(), strict=True
    ):
        assert (before != after).any()
        assert (after - before).norm() < (online - before).norm()
