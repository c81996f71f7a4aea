"""Hindsight experience replay: learn to reach goals by relabelling episodes with goals that they happened to reach."""

import argparse
import tempfile
from pathlib import Path

from stable_baselines3 import DQN, SAC, HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--bits", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    env = BitFlippingEnv(n_bits=options.bits, continuous=False, max_steps=options.bits)
    relabelling = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    model = DQN(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs=relabelling,
        learning_starts=100,
        seed=0,
        device="cpu",
    ).learn(options.steps)
    model.save(out / "her")

    # The buffer is computed anew from the environment's compute_reward, so loading needs the environment.
    model = DQN.load(out / "her", env=env, device="cpu")
    successes = 0
    for episode in range(20):
        observation, _ = env.reset(seed=episode)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        successes += bool(info["is_success"])
    print(f"reached {successes} goals of 20")

    continuous = BitFlippingEnv(n_bits=options.bits, continuous=True, max_steps=options.bits)
    model = SAC(
        "MultiInputPolicy",
        continuous,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs=relabelling | {"copy_info_dict": True},
        learning_starts=100,
        batch_size=64,
        seed=0,
        device="cpu",
    ).learn(200)
    batch = model.replay_buffer.sample(8)
    print("a batch holds", sorted(batch.observations), tuple(batch.rewards.shape))


if __name__ == "__main__":
    main()
