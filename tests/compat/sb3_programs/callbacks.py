"""Callbacks: your own, evaluations, checkpoints, stopping early, every n steps, a progress bar, several together."""

import argparse
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.results_plotter import load_results, ts2xy


class CountHooks(BaseCallback):
    """Counts how often each hook is called, and looks at the variables of the loop.

    Args:
        verbose: 0 says nothing, 1 prints at the end.
    """

    def __init__(self, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.counts = dict.fromkeys(["training_start", "rollout_start", "step", "rollout_end", "training_end"], 0)
        self.total_reward = 0.0

    def _on_training_start(self) -> None:
        self.counts["training_start"] += 1

    def _on_rollout_start(self) -> None:
        self.counts["rollout_start"] += 1

    def _on_step(self) -> bool:
        self.counts["step"] += 1
        self.total_reward += float(np.sum(self.locals["rewards"]))
        return True  # False would end the training

    def _on_rollout_end(self) -> None:
        self.counts["rollout_end"] += 1

    def _on_training_end(self) -> None:
        self.counts["training_end"] += 1
        if self.verbose:
            print(f"{self.num_timesteps} steps, {self.n_calls} calls, reward {self.total_reward:.0f}: {self.counts}")


class KeepBest(BaseCallback):
    """Saves the model whenever the mean of its latest training episodes is the best so far.

    Args:
        folder: where the monitor files are, and where the model goes.
        every: calls between looks.
    """

    def __init__(self, folder: Path, every: int) -> None:
        super().__init__()
        self.folder, self.every, self.best = folder, every, -np.inf

    def _on_step(self) -> bool:
        if self.n_calls % self.every == 0:
            _, returns = ts2xy(load_results(str(self.folder)), "timesteps")
            if len(returns) and (mean := float(np.mean(returns[-100:]))) > self.best:
                self.best = mean
                self.model.save(self.folder / "best_in_training")
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    # A custom one, alone. A Monitor with a file name writes each episode.
    env = Monitor(gym.make("CartPole-v1"), str(out / "train"))
    custom, best = CountHooks(verbose=1), KeepBest(out, every=200)
    A2C("MlpPolicy", env, device="cpu").learn(options.steps, callback=[custom, best])
    print("best mean return in training:", round(best.best, 1), (out / "best_in_training.zip").exists())

    # Checkpoints and evaluations; eval_freq and save_freq count calls, each of which is one step of every environment.
    checkpoints = CheckpointCallback(
        save_freq=options.steps // 4, save_path=str(out / "checkpoints"), name_prefix="cart", save_replay_buffer=True
    )
    evaluations = EvalCallback(
        Monitor(gym.make("CartPole-v1")),
        callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=475, verbose=1),
        callback_after_eval=StopTrainingOnNoModelImprovement(max_no_improvement_evals=3, min_evals=5, verbose=1),
        eval_freq=options.steps // 4,
        n_eval_episodes=3,
        log_path=str(out / "evaluations"),
        best_model_save_path=str(out / "best"),
        verbose=0,
    )
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=100, device="cpu")
    model.learn(options.steps, callback=CallbackList([checkpoints, evaluations]))
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        print("  ", path.relative_to(out))
    with np.load(out / "evaluations" / "evaluations.npz") as stored:
        print("evaluated after", stored["timesteps"].tolist(), "steps; results", stored["results"].shape)

    # Something every n steps of the environments, however many there are.
    every = EveryNTimesteps(n_steps=options.steps // 2, callback=CheckpointCallback(1, str(out / "every")))
    PPO("MlpPolicy", make_vec_env("CartPole-v1", 4), n_steps=64, device="cpu").learn(options.steps, callback=every)
    print("saved by EveryNTimesteps:", len(list((out / "every").glob("*.zip"))))

    # At most so many episodes.
    limit = StopTrainingOnMaxEpisodes(max_episodes=5, verbose=1)
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu").learn(1_000_000, callback=limit, progress_bar=True)
    print("stopped after", limit.n_episodes, "episodes and", model.num_timesteps, "steps")

    # A function gets the loop's variables, too.
    seen = []
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu")
    model.learn(10, callback=lambda locals_, globals_: not seen.append(locals_["actions"]))
    print("a function was called", len(seen), "times")


if __name__ == "__main__":
    main()
