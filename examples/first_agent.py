"""Train PPO to balance a pole, measure it, save it, load it, and act with it."""

import gymnasium as gym

from polyak import PPO, evaluate, load, make_vec_env


def main(steps: int = 50_000) -> float:
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=0)
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=256, n_epochs=20, gae_lambda=0.8, gamma=0.98, seed=0)
    model.learn(steps)
    result = evaluate(model, "CartPole-v1", n_episodes=20, seed=1)
    print(f"mean return {result.mean:.1f}, 95 % interval {result.ci}")
    model.save("first_agent")

    agent = load("first_agent")
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=2)
    total, done = 0.0, False
    while not done:
        action, _ = agent.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, done = total + float(reward), terminated or truncated
    print(f"one episode: {total:.0f}")
    return result.mean


if __name__ == "__main__":
    main()
