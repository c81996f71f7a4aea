"""The sixth unit of a course: A2C with normalised observations and rewards, evaluated with statistics held still."""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

ARM = "Reacher-v5" if find_spec("mujoco") else "Pendulum-v1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    env = VecNormalize(make_vec_env(ARM, n_envs=4), norm_obs=True, norm_reward=True, clip_obs=10.0)
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    model = A2C(policy=policy, env=env, device="cpu", verbose=0)
    model.learn(options.steps)
    model.save(out / "arm")
    env.save(str(out / "vec_normalize.pkl"))

    test_env = VecNormalize.load(str(out / "vec_normalize.pkl"), DummyVecEnv([lambda: gym.make(ARM)]))
    test_env.training = False
    test_env.norm_reward = False
    counted = float(test_env.obs_rms.count)
    model = A2C.load(out / "arm", device="cpu")
    mean, deviation = evaluate_policy(model, test_env, n_eval_episodes=3, warn=False)
    print(f"Mean reward = {mean:.2f} +/- {deviation:.2f}")
    print("the evaluation moved no statistics:", float(test_env.obs_rms.count) == counted)


if __name__ == "__main__":
    main()
