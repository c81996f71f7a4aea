"""How good is a policy? The mean over episodes, each of them, with a look at every step, and against another."""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor


class Upright:
    """Not a neural network: pushes the cart below the pole. Anything with ``predict`` can be evaluated."""

    def predict(
        self, observation: np.ndarray, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Push to the side to which the pole is falling."""
        return (observation[:, 2] + 0.3 * observation[:, 3] > 0).astype(int), state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args()

    env = Monitor(gym.make("CartPole-v1"))  # without it, wrappers that change rewards would change the results
    model = PPO("MlpPolicy", env, n_steps=256, seed=0, device="cpu")
    mean, std = evaluate_policy(model, env, n_eval_episodes=3)
    print(f"before: {mean:.1f} +- {std:.1f}")
    model.learn(options.steps)
    mean, std = evaluate_policy(model, env, n_eval_episodes=3, deterministic=True)
    print(f"after:  {mean:.1f} +- {std:.1f}")

    several = make_vec_env("CartPole-v1", n_envs=4, seed=0)
    returns, lengths = evaluate_policy(model, several, n_eval_episodes=8, return_episode_rewards=True)
    print("each episode:", returns, lengths)

    angles: list[float] = []

    def look(locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        angles.append(float(locals_["observations"][0, 2]))

    evaluate_policy(model, several, n_eval_episodes=2, callback=look)
    print("largest angle seen:", round(float(np.abs(angles).max()), 3))
    print("by rule:", evaluate_policy(Upright(), several, n_eval_episodes=4))
    try:
        evaluate_policy(model, env, n_eval_episodes=1, reward_threshold=1e6)
    except AssertionError as error:
        print("below the threshold:", str(error)[:40])


if __name__ == "__main__":
    main()
