"""Environments in processes of their own, each with its own seed.

The guard at the end is needed: processes started by spawn or forkserver import this file.
"""

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv


def maker(env_id: str, rank: int, seed: int = 0) -> Callable[[], gym.Env]:
    """A function that makes one environment, to be called in the process where it will live."""

    def make() -> gym.Env:
        env = gym.make(env_id)
        env.reset(seed=seed + rank)
        return env

    set_random_seed(seed)
    return make


def speed(model: PPO, steps: int) -> float:
    """Steps a second while learning."""
    started = time.perf_counter()
    model.learn(steps)
    return model.num_timesteps / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--start-method", default="spawn", choices=["spawn", "forkserver", "fork"])
    options = parser.parse_args()

    makers = [maker("CartPole-v1", rank) for rank in range(options.processes)]
    apart = SubprocVecEnv(makers, start_method=options.start_method)
    model = PPO("MlpPolicy", apart, n_steps=128, device="cpu")
    print(f"{options.processes} processes: {speed(model, options.steps):.0f} steps a second")

    observations = apart.reset()
    for _ in range(50):
        actions, _ = model.predict(observations, deterministic=True)
        observations, rewards, dones, infos = apart.step(actions)
    print("after 50 steps:", observations.shape, rewards.shape, dones.shape, len(infos))
    print("step limits of all:", apart.get_attr("spec")[0].max_episode_steps, "of", apart.num_envs)
    apart.close()

    together = DummyVecEnv(makers)
    model = PPO("MlpPolicy", together, n_steps=128, device="cpu")
    print(f"the same in this process: {speed(model, options.steps):.0f} steps a second")
    together.close()

    # The short way, with a Monitor around each environment:
    short = make_vec_env(
        "CartPole-v1", 2, seed=3, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": options.start_method}
    )
    print("made in one call:", short.reset().shape)
    short.close()


if __name__ == "__main__":
    main()
