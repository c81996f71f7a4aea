"""Reinforcement learning with tables: plan with a known model, learn without one, and compare with the exact answer."""

import gymnasium as gym

from polyak import SARSA, PolicyIteration, QLearning, evaluate


def main(steps: int = 100_000) -> dict[str, float]:
    exact = PolicyIteration("CliffWalking-v1", gamma=1.0).learn(100)
    returns = {"the best possible": exact.start_value}
    for algorithm in (QLearning, SARSA):
        model = algorithm("CliffWalking-v1", learning_rate=0.5, epsilon=0.1, gamma=1.0, seed=0)
        model.learn(steps)
        env = gym.make("CliffWalking-v1", max_episode_steps=200)
        returns[algorithm.__name__] = evaluate(model, env, n_episodes=1).mean
        print(algorithm.__name__, "table", model.table.shape, "greedy in the first states", model.greedy[:12])
    print(returns)  # SARSA keeps away from the cliff, along which its own exploration makes it fall
    return returns


if __name__ == "__main__":
    main()
