"""Environments in processes of their own, on this machine or on a cluster, by arguments of the constructor.

transport="local" makes the same numbers in this process; the default, "ray", needs pip install 'polyak[scale]'.
"""

from polyak import PPO, evaluate, make_vec_env


def environments(runner: int):
    """What each runner steps; it is called in the runner's process."""
    return make_vec_env("CartPole-v1", n_envs=4)


def main(steps: int = 50_000, transport: str = "ray") -> float:
    # Two runners collect, and this process learns; n_learners=2 would share each gradient step between two processes.
    options = {"n_steps": 64, "batch_size": 256, "learning_rate": 1e-3, "gamma": 0.98, "seed": 0}
    model = PPO("MlpPolicy", environments, n_runners=2, transport=transport, **options).learn(steps)
    model.save("runners")  # an ordinary file: it loads without runners
    result = evaluate(PPO.load("runners"), "CartPole-v1", n_episodes=20, seed=1)
    print(f"mean return {result.mean:.0f}")
    return result.mean


if __name__ == "__main__":  # processes import this file
    main()
