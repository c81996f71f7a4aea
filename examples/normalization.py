"""Normalised observations and rewards: the statistics are saved with the model, and applied by it."""

from polyak import PPO, VecNormalize, evaluate, make_vec_env


def main(steps: int = 60_000) -> float:
    envs = VecNormalize(make_vec_env("Pendulum-v1", n_envs=4, seed=0), gamma=0.9)
    model = PPO("MlpPolicy", envs, n_steps=256, gamma=0.9, learning_rate=1e-3, use_sde=True, sde_sample_freq=4, seed=0)
    model.learn(steps)
    model.save("normalized")

    agent = PPO.load("normalized")  # no environment: predict takes raw observations and normalises them
    raw = make_vec_env("Pendulum-v1", seed=1)
    action, _ = agent.predict(raw.reset(), deterministic=True)
    print("an action for a raw observation:", action[0])

    result = evaluate(agent, "Pendulum-v1", n_episodes=20, seed=1)  # returns in the units of the environment
    print(f"mean return {result.mean:.0f}")
    return result.mean


if __name__ == "__main__":
    main()
