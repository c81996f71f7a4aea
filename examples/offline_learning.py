"""Learn from recorded data alone, and estimate from other recorded data what the policy would earn."""

from polyak import FQE, IQL, SAC, Dataset, collect, evaluate


def main(steps: int = 8_000, updates: int = 8_000) -> tuple[float, float]:
    # What an agent did on its way from random actions to good ones. A file would do: Dataset.load("data.npz").
    small = {"policy_kwargs": {"net_arch": [64, 64]}, "learning_rate": 1e-3, "seed": 0}
    recorded = Dataset.from_model(SAC("MlpPolicy", "Pendulum-v1", **small).learn(steps))
    print(recorded)

    model = IQL("MlpPolicy", recorded, **small).learn(updates)  # gradient steps, no environment
    model.save("offline")

    # Without an environment: the discounted value of the policy from the states where episodes begin.
    others = collect("Pendulum-v1", policy=None, n=2_000, seed=1)
    critic = FQE("MlpPolicy", recorded, target=model, gamma=0.95, reward_scaling=(0.1, 0.0), seed=0).learn(updates)
    print("estimated discounted return:", critic.estimate(others))

    result = evaluate(model, "Pendulum-v1", n_episodes=20, seed=2)  # if there is an environment after all
    print(f"recorded {recorded.returns.mean():.0f}, learned {result.mean:.0f}")
    return float(recorded.returns.mean()), result.mean


if __name__ == "__main__":
    main()
