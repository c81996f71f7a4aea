"""evaluate_policy."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import worlds
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize


class Fixed:
    """Always the same action."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> Any:
        self.asked.append(
            [len(observation), None if episode_start is None else list(map(bool, episode_start)), deterministic]
        )
        return np.zeros(len(observation), int), state


def results() -> Any:
    """Mean and deviation, or each episode; split over environments."""
    fixed = Fixed()
    single = Monitor(worlds.Counting(3))
    lengths = DummyVecEnv([partial(lambda n: Monitor(worlds.Counting(n)), n) for n in (2, 3, 5)])
    return {
        "single": evaluate_policy(fixed, single, n_eval_episodes=4),
        "lists": evaluate_policy(fixed, single, n_eval_episodes=2, return_episode_rewards=True),
        "split": evaluate_policy(fixed, lengths, n_eval_episodes=7, return_episode_rewards=True),
        "types": [type(item).__name__ for item in evaluate_policy(fixed, single, n_eval_episodes=2)],
    }


def what_is_asked() -> Any:
    """Arguments that the model gets."""
    fixed = Fixed()
    evaluate_policy(
        fixed, DummyVecEnv([lambda: Monitor(worlds.Counting(2))] * 2), n_eval_episodes=4, deterministic=False
    )
    return fixed.asked


def true_rewards() -> Any:
    """A Monitor's rewards count, where there is one."""
    doubled = gym.wrappers.TransformReward(Monitor(worlds.Counting(3)), lambda reward: 2 * reward)
    outside = Monitor(gym.wrappers.TransformReward(worlds.Counting(3), lambda reward: 2 * reward))
    normalised = VecNormalize(DummyVecEnv([lambda: Monitor(worlds.Counting(3))]))
    return [evaluate_policy(Fixed(), env, n_eval_episodes=2) for env in (doubled, outside, normalised)]


def callbacks() -> Any:
    """What a callback sees."""
    seen: list[Any] = []

    def look(locals_: dict, globals_: dict) -> None:
        names = ("current_rewards", "current_lengths", "episode_counts", "i", "n_envs")
        seen.append({name: np.array(locals_[name]).tolist() for name in names})

    evaluate_policy(Fixed(), Monitor(worlds.Counting(2)), n_eval_episodes=2, callback=look)
    return seen


def threshold() -> Any:
    """Below ``reward_threshold`` is an AssertionError."""
    return evaluate_policy(Fixed(), Monitor(worlds.Counting(2)), n_eval_episodes=1, reward_threshold=100.0)


def trained() -> Any:
    """A model on its own environment."""
    model = A2C("MlpPolicy", make_vec_env(worlds.Counting, 2), device="cpu", seed=0)
    return evaluate_policy(model, model.get_env(), n_eval_episodes=3, return_episode_rewards=True)
