"""The first unit of a course: PPO in sixteen environments, a saved model, episodes that Monitor counts."""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

TASK = "LunarLander-v3" if find_spec("Box2D") else "CartPole-v1"
SETTINGS = {"n_steps": 1024, "batch_size": 64, "n_epochs": 4, "gamma": 0.999, "gae_lambda": 0.98, "ent_coef": 0.01}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16_384)
    parser.add_argument("--out", type=Path, help="folder for the model (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())

    model = PPO("MlpPolicy", make_vec_env(TASK, n_envs=16), **SETTINGS, seed=0, device="cpu", verbose=0)
    model.learn(total_timesteps=options.steps)
    model.save(out / f"ppo-{TASK}")

    model = PPO.load(out / f"ppo-{TASK}", custom_objects={"learning_rate": 0.0}, print_system_info=True, device="cpu")
    alone = Monitor(gym.make(TASK, render_mode="rgb_array"))
    mean, deviation = evaluate_policy(model, alone, n_eval_episodes=10, deterministic=True)
    print(f"mean_reward={mean:.2f} +/- {deviation:.2f}")
    print("episodes of the evaluation:", len(alone.get_episode_rewards()))


if __name__ == "__main__":
    main()
