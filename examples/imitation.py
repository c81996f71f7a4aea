"""Learn from an expert, three ways: copy its actions (BC), ask it (DAgger), or tell its steps from others' (GAIL)."""

from polyak import BC, GAIL, PPO, DAgger, collect, evaluate, make_vec_env

ENV = "CartPole-v1"


def main(steps: int = 40_000) -> dict[str, float]:
    options = {"n_steps": 32, "batch_size": 64, "learning_rate": 1e-3, "gamma": 0.98}
    expert = PPO("MlpPolicy", make_vec_env(ENV, n_envs=8, seed=0), seed=0, **options).learn(steps)
    demonstrations = collect(ENV, expert, n=2_000, deterministic=True, whole_episodes=True, seed=0)

    cloned = BC("MlpPolicy", demonstrations, seed=0).learn(steps // 20)
    asked = DAgger("MlpPolicy", ENV, expert=expert, steps_per_round=100, seed=0).learn(steps // 20)
    envs = make_vec_env(ENV, n_envs=8, seed=1)
    told_apart = GAIL(
        "MlpPolicy", envs, demonstrations=demonstrations, generator="ppo", generator_kwargs=options, seed=0
    ).learn(steps)

    models = {"expert": expert, "BC": cloned, "DAgger": asked, "GAIL": told_apart}
    returns = {name: evaluate(model, ENV, n_episodes=20, seed=2).mean for name, model in models.items()}
    print(returns)
    return returns


if __name__ == "__main__":
    main()
