"""Short seeded trainings: logged numbers and sums of weights."""

from typing import Any

import numpy as np
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecNormalize

# Of sums of weights and of losses, after some hundred updates in which differences of rounding grow.
TOLERANCE = 2e-3


def _sums(model: Any) -> dict[str, Any]:
    """Sums over all weights of each part, and the logged values of the last update."""
    parts: dict[str, float] = {}
    for name, tensor in model.policy.state_dict().items():
        part = name.split(".")[0]
        parts[part] = parts.get(part, 0.0) + float(tensor.double().abs().sum())
    logged = {key: float(value) for key, value in model.logger.name_to_value.items() if key.startswith("train/")}
    seen = [float(np.mean([episode["r"] for episode in model.ep_info_buffer]))]
    return {"weights": parts, "logged": logged, "returns": seen, "updates": model._n_updates}


def _on_policy(cls: Any, env: Any, steps: int, policy: str = "MlpPolicy", **options: Any) -> dict[str, Any]:
    model = cls(policy, env, seed=7, device="cpu", **options)
    return _sums(model.learn(steps, log_interval=10_000))


def a2c_cartpole() -> Any:
    """Discrete actions, two environments."""
    return _on_policy(A2C, make_vec_env("CartPole-v1", 2, seed=7), 100)


def a2c_pendulum() -> Any:
    """Box actions and TensorFlow's RMSprop."""
    options = {"policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}}
    return _on_policy(A2C, make_vec_env("Pendulum-v1", 2, seed=7), 800, **options)


def a2c_gsde() -> Any:
    """Exploration that depends on the state."""
    return _on_policy(A2C, make_vec_env("Pendulum-v1", 1, seed=7), 400, use_sde=True, sde_sample_freq=3)


def ppo_cartpole() -> Any:
    """Discrete actions."""
    return _on_policy(PPO, make_vec_env("CartPole-v1", 2, seed=7), 256, n_steps=64, batch_size=32, n_epochs=4)


def ppo_pendulum() -> Any:
    """Box actions, clipped values, falling learning rate, normalised environment."""
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=7))
    options = {"n_steps": 200, "batch_size": 64, "n_epochs": 3, "clip_range_vf": 0.2, "ent_coef": 0.01}
    return _on_policy(PPO, env, 800, learning_rate=lambda progress: 1e-3 * progress, **options)


def ppo_target_kl() -> Any:
    """Stopping an update early."""
    return _on_policy(PPO, "CartPole-v1", 256, n_steps=128, batch_size=32, target_kl=0.003, learning_rate=1e-3)


def ppo_pictures() -> Any:
    """A convolutional network."""
    return _on_policy(PPO, worlds.Pictures(), 32, policy="CnnPolicy", n_steps=16, batch_size=8, n_epochs=2)


def ppo_dict() -> Any:
    """A Dict of observations."""
    return _on_policy(PPO, worlds.Several(), 32, policy="MultiInputPolicy", n_steps=16, batch_size=8, n_epochs=2)


def ppo_several_actions() -> Any:
    """MultiDiscrete and MultiBinary actions."""
    found = {}
    for name, space in {"several": spaces.MultiDiscrete([2, 3]), "switches": spaces.MultiBinary(3)}.items():
        env = worlds.Counting(action_space=space)
        found[name] = _on_policy(PPO, env, 32, n_steps=16, batch_size=8, n_epochs=2)
    return found


def _off_policy(cls: Any, env: Any, steps: int, **options: Any) -> dict[str, Any]:
    settings = {"learning_starts": 20, "buffer_size": 500, "batch_size": 16, **options}
    return _sums(cls("MlpPolicy", env, seed=7, device="cpu", **settings).learn(steps, log_interval=10_000))


def dqn() -> Any:
    """One environment."""
    return _off_policy(DQN, "CartPole-v1", 80, train_freq=2, target_update_interval=30, exploration_fraction=0.5)


def dqn_n_steps() -> Any:
    """Returns over three steps."""
    return _off_policy(DQN, "CartPole-v1", 60, train_freq=2, n_steps=3)


def sac() -> Any:
    """Learned temperature."""
    return _off_policy(SAC, worlds.Target(), 60)


def sac_fixed() -> Any:
    """Fixed temperature, several steps at once."""
    return _off_policy(SAC, worlds.Target(), 60, ent_coef=0.2, train_freq=4, gradient_steps=2, target_update_interval=2)


def sac_gsde() -> Any:
    """Exploration that depends on the state."""
    return _off_policy(SAC, worlds.Target(), 50, use_sde=True, sde_sample_freq=5)


def sac_two() -> Any:
    """Two environments."""
    return _off_policy(SAC, make_vec_env(worlds.Target, 2), 60, gradient_steps=-1)


def td3() -> Any:
    """With noise."""
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    return _off_policy(TD3, worlds.Target(), 60, action_noise=noise)


def ddpg() -> Any:
    """One critic, no delay; updates after episodes."""
    return _off_policy(DDPG, worlds.Target(), 60, train_freq=(1, "episode"), gradient_steps=-1)


def repeated() -> Any:
    """Equal seeds, equal trainings."""
    found = {}
    for name, run in {"a2c": a2c_cartpole, "sac": sac, "dqn": dqn}.items():
        found[name] = run() == run()
    return found
