"""Tune hyper-parameters with Optuna, by the search space of the algorithm's card.

`polyak tune --algo ppo --env CartPole-v1` does more: pruning, several seeds, several processes, resumed studies.
"""

import optuna

from polyak import PPO, evaluate, make_vec_env
from polyak.algorithm_info import Search, Task, tune

space = Search(
    tune.log_uniform("learning_rate", 1e-4, 1e-2),
    tune.uniform("gae_lambda", 0.8, 0.99),
    tune.uniform("clip_range", 0.1, 0.4),
)


def main(steps: int = 10_000, trials: int = 10) -> optuna.Study:
    def score(trial: optuna.Trial) -> float:
        """Mean over two seeds, so that one lucky seed does not decide."""
        settings = space(trial, Task(n_timesteps=steps, n_envs=8))
        returns = []
        for seed in (0, 1):
            envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
            model = PPO("MlpPolicy", envs, n_steps=32, batch_size=256, gamma=0.98, seed=seed, **settings).learn(steps)
            returns.append(evaluate(model, "CartPole-v1", n_episodes=10, seed=100 + seed).mean)
        return sum(returns) / len(returns)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(score, n_trials=trials)
    print(f"best mean return {study.best_value:.0f} with {study.best_params}")
    return study


if __name__ == "__main__":
    main()
