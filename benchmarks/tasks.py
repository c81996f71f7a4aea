"""The benchmark's tasks: one table, the same rows for every library.

Hyper-parameters are Stable-Baselines3's defaults, except where a row says otherwise. A value that is the default in
Stable-Baselines3 but not in SBX (learning rate, layer sizes, target interval) is stated, so that every library does
the same arithmetic. Breakout has the well-known Atari settings, on the game that plays one frame at a time: the
wrappers repeat each action four times. On ``ALE/Breakout-v5``, which does so itself, a step would be sixteen frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SpeedTask:
    """One row of the benchmark."""

    algo: str
    env: str
    steps: int
    """Environment steps of one timed ``learn``."""
    n_envs: int = 1
    policy: str = "MlpPolicy"
    settings: Mapping[str, Any] = field(default_factory=dict)
    atari: bool = False
    """Whether the environment is made by ``make_atari_env``, with four frames stacked."""
    masked: bool = False
    """Whether CartPole is wrapped so that a cart that is fast may not be pushed on."""
    libraries: tuple[str, ...] = ("polyak", "sb3", "sbx")


_TD3 = {"learning_rate": 1e-3, "policy_kwargs": {"net_arch": [400, 300]}}
_TD3_256 = {"learning_rate": 1e-3, "policy_kwargs": {"net_arch": [256, 256]}}
_DQN = {"target_update_interval": 10_000, "policy_kwargs": {"net_arch": [64, 64]}}
_QRDQN = {"target_update_interval": 10_000, "policy_kwargs": {"net_arch": [64, 64]}}
_TQC = {"top_quantiles_to_drop_per_net": 2, "policy_kwargs": {"net_arch": [256, 256], "n_critics": 2}}
_PPO_ATARI = {
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 4,
    "learning_rate": 2.5e-4,
    "clip_range": 0.1,
    "ent_coef": 0.01,
}

TASKS: dict[str, SpeedTask] = {
    "sac-halfcheetah": SpeedTask("SAC", "HalfCheetah-v5", 5_000),
    "td3-halfcheetah": SpeedTask("TD3", "HalfCheetah-v5", 5_000, settings=_TD3, libraries=("polyak", "sb3")),
    "td3-halfcheetah-256": SpeedTask("TD3", "HalfCheetah-v5", 5_000, settings=_TD3_256),
    "dqn-cartpole": SpeedTask("DQN", "CartPole-v1", 50_000, settings=_DQN),
    "qrdqn-cartpole": SpeedTask("QRDQN", "CartPole-v1", 50_000, settings=_QRDQN, libraries=("polyak", "contrib")),
    "tqc-halfcheetah": SpeedTask(
        "TQC", "HalfCheetah-v5", 10_000, settings=_TQC, libraries=("polyak", "contrib", "sbx")
    ),
    "crossq-halfcheetah": SpeedTask("CrossQ", "HalfCheetah-v5", 3_000, libraries=("polyak", "contrib", "sbx")),
    "ppo-cartpole-1": SpeedTask("PPO", "CartPole-v1", 81_920),
    "ppo-cartpole-8": SpeedTask("PPO", "CartPole-v1", 81_920, n_envs=8),
    "maskable-ppo": SpeedTask(
        "MaskablePPO", "CartPole-v1", 81_920, n_envs=8, masked=True, libraries=("polyak", "contrib")
    ),
    "ppo-halfcheetah": SpeedTask("PPO", "HalfCheetah-v5", 81_920),
    "recurrent-ppo-cartpole-8": SpeedTask(
        "RecurrentPPO", "CartPole-v1", 8_192, n_envs=8, policy="MlpLstmPolicy", libraries=("polyak", "contrib")
    ),
    "trpo-cartpole-8": SpeedTask("TRPO", "CartPole-v1", 163_840, n_envs=8, libraries=("polyak", "contrib")),
    "trpo-halfcheetah": SpeedTask("TRPO", "HalfCheetah-v5", 163_840, libraries=("polyak", "contrib")),
    "ars-cartpole": SpeedTask("ARS", "CartPole-v1", 100_000, policy="LinearPolicy", libraries=("polyak", "contrib")),
    "ars-cartpole-8": SpeedTask(
        "ARS", "CartPole-v1", 100_000, n_envs=8, policy="LinearPolicy", libraries=("polyak", "contrib")
    ),
    "a2c-cartpole-8": SpeedTask("A2C", "CartPole-v1", 500_000, n_envs=8, libraries=("polyak", "sb3")),
    "ppo-breakout-8": SpeedTask(
        "PPO", "BreakoutNoFrameskip-v4", 8_192, n_envs=8, policy="CnnPolicy", settings=_PPO_ATARI, atari=True
    ),
}
