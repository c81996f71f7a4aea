"""Save a model, load it without and with an environment, go on learning, and keep the replay buffer."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.sac import MlpPolicy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=100, seed=0, device="cpu").learn(options.steps)
    model.save(out / "sac_pendulum")
    model.save_replay_buffer(out / "sac_buffer")
    model.policy.save(str(out / "sac_policy"))  # the networks alone
    observations = model.get_env().observation_space.sample()[None].repeat(3, axis=0)
    expected, _ = model.predict(observations, deterministic=True)
    del model

    # Enough to act with:
    loaded = SAC.load(out / "sac_pendulum", device="cpu")
    actions, _ = loaded.predict(observations, deterministic=True)
    print("the same actions:", np.array_equal(actions, expected))
    print("no buffer comes with it:", loaded.replay_buffer.size() if loaded.replay_buffer else 0)
    policy = MlpPolicy.load(str(out / "sac_policy"))
    print("the policy alone, too:", np.array_equal(policy.predict(observations, deterministic=True)[0], expected))

    # Enough to go on with:
    loaded.load_replay_buffer(out / "sac_buffer")
    print("transitions:", loaded.replay_buffer.size())
    env = make_vec_env("Pendulum-v1", 1, seed=5)
    loaded.set_env(env)
    loaded.learn(options.steps, reset_num_timesteps=False)
    print("steps before and after:", options.steps, loaded.num_timesteps)
    print("mean return:", round(evaluate_policy(loaded, env, n_eval_episodes=1)[0]))

    # The number of environments may change, and hyper-parameters may be replaced.
    ppo = PPO("MlpPolicy", make_vec_env("CartPole-v1", 2), n_steps=64, device="cpu").learn(options.steps)
    ppo.save(out / "ppo_cartpole")
    again = PPO.load(out / "ppo_cartpole", env=make_vec_env("CartPole-v1", 4), n_epochs=2, device="cpu")
    again.learn(options.steps)
    print("environments:", again.n_envs, "epochs:", again.n_epochs)

    # The weights of a file into a model that is there already.
    other = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    other.set_parameters(str(out / "ppo_cartpole"), exact_match=True, device="cpu")
    mine, theirs = other.policy.state_dict(), ppo.policy.state_dict()
    print("equal weights:", all(bool((mine[name] == theirs[name]).all()) for name in mine))


if __name__ == "__main__":
    main()
