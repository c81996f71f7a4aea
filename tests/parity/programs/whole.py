"""Whole trainings at learning rates so small that differences of rounding do not grow: episode for episode."""

import os
from typing import Any

import numpy as np
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

# Of returns and sums of weights: differences of rounding grow in some thousand updates, though none of these worlds
# makes them larger by itself.
TOLERANCE = 1e-3

RATE = 3e-5
OFF_POLICY: dict[str, Any] = {"learning_starts": 200, "buffer_size": 2_000, "batch_size": 32, "learning_rate": RATE}
SMALL: dict[str, Any] = {"net_arch": [32, 32]}


class Episodes(BaseCallback):
    """Return and length of every episode."""

    def _on_training_start(self) -> None:
        self.seen: list[list[float]] = []

    def _on_step(self) -> bool:
        infos = (info["episode"] for info in self.locals["infos"] if "episode" in info)
        self.seen += [[round(float(episode["r"]), 4), episode["l"]] for episode in infos]
        return True


def _train(cls: Any, env_id: str, steps: int, n_envs: int = 1, **options: Any) -> dict[str, Any]:
    env = make_vec_env(env_id, n_envs, seed=7, env_kwargs={"max_episode_steps": 200})
    model = cls("MlpPolicy", env, seed=7, device="cpu", policy_kwargs=dict(SMALL), **options)
    if os.environ.get("POLYAK_PARITY_COMPILED") and hasattr(model, "engine"):
        model.engine = type(model.engine)(model.learner, True)
    episodes = Episodes()
    model.learn(steps, callback=episodes, log_interval=10_000)
    weights = sum(float(tensor.double().abs().sum()) for tensor in model.policy.state_dict().values())
    return {"episodes": episodes.seen, "weights": weights, "updates": model._n_updates}


def _noise() -> NormalActionNoise:
    return NormalActionNoise(np.zeros(1), 0.3 * np.ones(1))


def a2c() -> Any:
    """Four environments."""
    return _train(A2C, "CartPole-v1", 12_000, 4, learning_rate=RATE)


def ppo() -> Any:
    """Two environments, whole rollouts."""
    return _train(PPO, "CartPole-v1", 8_192, 2, learning_rate=RATE, n_steps=512)


def dqn() -> Any:
    """An exploration rate that falls, and a target that is copied."""
    settings = {"target_update_interval": 500, "exploration_fraction": 0.5, "train_freq": 2}
    return _train(DQN, "CartPole-v1", 8_000, **OFF_POLICY, **settings)


def ddpg() -> Any:
    """Action noise."""
    return _train(DDPG, "MountainCarContinuous-v0", 2_000, **OFF_POLICY, action_noise=_noise())


def td3() -> Any:
    """Delayed updates of the actor."""
    return _train(TD3, "MountainCarContinuous-v0", 2_000, **OFF_POLICY, action_noise=_noise())


def sac() -> Any:
    """A temperature that is learned."""
    return _train(SAC, "MountainCarContinuous-v0", 2_000, **OFF_POLICY)
