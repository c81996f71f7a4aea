"""A task that one observation does not tell: CartPole without its velocities, with an LSTM and without."""

from polyak import PPO, evaluate, make_vec_env


def main(steps: int = 60_000) -> dict[str, float]:
    returns = {}
    for name, network in {"feed-forward": {}, "LSTM": {"memory": "lstm", "memory_size": 64}}.items():
        envs = make_vec_env("CartPoleNoVel-v1", n_envs=8, seed=0)
        model = PPO("MlpPolicy", envs, n_steps=128, batch_size=256, learning_rate=1e-3, policy_kwargs=network, seed=0)
        model.learn(steps)
        returns[name] = evaluate(model, "CartPoleNoVel-v1", n_episodes=20, seed=1).mean  # handles the recurrent state
        print(f"{name}: mean return {returns[name]:.0f}")

    # By hand: predict takes the recurrent state and returns the next one; starts says where an episode begins.
    observations, state, starts = envs.reset(), None, [True] * 8
    for _ in range(10):
        actions, state = model.predict(observations, state, starts, deterministic=True)
        observations, _, starts, _ = envs.step(actions)
    return returns


if __name__ == "__main__":
    main()
