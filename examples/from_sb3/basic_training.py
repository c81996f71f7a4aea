"""Train PPO to balance a pole, watch how well it does, and use it step by step.

Two loops act with the trained model: one over a Gymnasium environment, one over the vectorised environment that the
model made of it, which starts new episodes by itself.
"""

import argparse

import gymnasium as gym
from stable_baselines3 import A2C, PPO


def play(model: PPO, env: gym.Env, episodes: int) -> list[float]:
    """Returns of episodes in a single environment."""
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4_000)
    options = parser.parse_args()

    env = gym.make("CartPole-v1")
    model = PPO("MlpPolicy", env, n_steps=512, seed=1, device="cpu", verbose=1)
    model.learn(total_timesteps=options.steps)
    print("returns:", play(model, env, episodes=3))

    vec_env = model.get_env()
    observations = vec_env.reset()
    finished = 0
    for _ in range(200):
        actions, _ = model.predict(observations)
        observations, _, _, infos = vec_env.step(actions)
        finished += sum("episode" in info for info in infos)  # what Monitor adds when an episode ends
    print("episodes that ended within 200 steps:", finished)

    one_line = A2C("MlpPolicy", "CartPole-v1", device="cpu").learn(200)
    print("A2C has seen", one_line.num_timesteps, "steps")


if __name__ == "__main__":
    main()
