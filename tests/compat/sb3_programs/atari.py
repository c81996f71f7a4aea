"""Atari games with the usual preprocessing and four stacked frames. A few steps only, by default."""

import argparse
import sys

from stable_baselines3 import A2C, DQN
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecFrameStack

try:
    import ale_py
    import gymnasium as gym
except ImportError:
    sys.exit("this needs the Atari games: pip install ale-py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--game", default="PongNoFrameskip-v4")
    options = parser.parse_args()
    gym.register_envs(ale_py)

    env = VecFrameStack(make_atari_env(options.game, n_envs=2, seed=0), n_stack=4)
    print("observations:", env.observation_space.shape, env.observation_space.dtype)
    model = A2C("CnnPolicy", env, device="cpu", seed=0).learn(options.steps)
    print("the network reads channels first:", model.observation_space.shape)

    observations = env.reset()
    actions, _ = model.predict(observations, deterministic=False)
    observations, rewards, _, infos = env.step(actions)
    print("after a step:", observations.shape, rewards.shape, [info["lives"] for info in infos])

    single = VecFrameStack(make_atari_env(options.game, n_envs=1, wrapper_kwargs={"frame_skip": 8}), n_stack=4)
    model = DQN(
        "CnnPolicy", single, buffer_size=500, learning_starts=20, optimize_memory_usage=False, device="cpu"
    ).learn(options.steps)
    if options.steps > 10_000:
        print("return of an episode:", evaluate_policy(model, single, n_eval_episodes=1)[0])
    env.close()
    single.close()


if __name__ == "__main__":
    main()
