"""Observations and rewards scaled by running statistics, which are saved beside the model and loaded again."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0), norm_obs=True, norm_reward=True, clip_obs=10.0)
    model = PPO("MlpPolicy", env, n_steps=256, seed=0, device="cpu").learn(options.steps)
    model.save(out / "ppo_pendulum")
    env.save(str(out / "statistics.pkl"))
    print("mean observation:", np.round(env.obs_rms.mean, 2), "after", round(env.obs_rms.count), "steps")

    raw = make_vec_env("Pendulum-v1", 2, seed=0)
    test_env = VecNormalize.load(str(out / "statistics.pkl"), raw)
    test_env.training = False  # these episodes do not move the statistics
    test_env.norm_reward = False  # returns as the environment gives them
    model = PPO.load(out / "ppo_pendulum", env=test_env, device="cpu")
    mean, std = evaluate_policy(model, test_env, n_eval_episodes=4)
    print(f"return: {mean:.0f} +- {std:.0f}")
    same = np.allclose(test_env.obs_rms.mean, env.obs_rms.mean)
    print("the statistics came back:", same)

    observations = test_env.reset()
    print("as the environment sees it:", np.round(test_env.get_original_obs()[0], 2))
    print("as the policy sees it:     ", np.round(observations[0], 2))
    print("and back:                  ", np.round(test_env.unnormalize_obs(observations)[0], 2))


if __name__ == "__main__":
    main()
