"""Callbacks that stop training early."""

from typing import Any

import numpy as np

from polyak.callbacks.callback import BaseCallback
from polyak.hyperparameters.declaration import whole


class StopTrainingOnRewardThreshold(BaseCallback):
    """Stop once the best mean return of an evaluation reaches a threshold.

    A child of :class:`EvalCallback`: pass it as its ``callback_on_new_best``.

    Args:
        reward_threshold: the return that stops training.
        verbose: 1 prints why training stops.
    """

    _reads_locals = False

    def __init__(self, reward_threshold: float, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.reward_threshold = reward_threshold

    def _on_step(self) -> bool:
        best = _evaluation_above(self).best_mean_reward
        keep_going = bool(best < self.reward_threshold)
        if not keep_going and self.verbose >= 1:
            print(f"Training stops: the mean return {best:.2f} reaches reward_threshold={self.reward_threshold}")
        return keep_going


class StopTrainingOnNoModelImprovement(BaseCallback):
    """Stop after several evaluations in a row without a new best.

    A child of :class:`EvalCallback`: pass it as its ``callback_after_eval``.

    Args:
        max_no_improvement_evals: allowed number of evaluations in a row without a new best; one more stops training.
        min_evals: evaluations before counting starts.
        verbose: 1 prints why training stops.
    """

    _reads_locals = False

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.max_no_improvement_evals = max_no_improvement_evals
        self.min_evals = min_evals
        self.last_best_mean_reward = -np.inf
        self.no_improvement_evals = 0

    def _on_step(self) -> bool:
        best = _evaluation_above(self).best_mean_reward
        if self.n_calls > self.min_evals:
            self.no_improvement_evals = 0 if best > self.last_best_mean_reward else self.no_improvement_evals + 1
        self.last_best_mean_reward = best
        keep_going = self.no_improvement_evals <= self.max_no_improvement_evals
        if not keep_going and self.verbose >= 1:
            n = self.no_improvement_evals
            print(f"Training stops: {n} evaluations in a row brought no new best")
        return keep_going


def _evaluation_above(callback: BaseCallback) -> Any:
    """Returns the EvalCallback that ``callback`` is a child of."""
    if not hasattr(callback.parent, "best_mean_reward"):
        raise AssertionError(
            f"{type(callback).__name__} must be used with an EvalCallback: pass it as its callback_on_new_best or "
            "callback_after_eval instead of to learn()."
        )
    return callback.parent


class StopTrainingOnMaxEpisodes(BaseCallback):
    """Stop after a number of episodes: ``max_episodes`` per environment on average.

    Args:
        max_episodes: number of episodes, multiplied by the number of environments.
        verbose: 1 prints why training stops.

    Raises:
        ValueError: ``max_episodes`` is less than 1.
    """

    def __init__(self, max_episodes: int, verbose: int = 0) -> None:
        super().__init__(verbose=verbose)
        self.max_episodes = whole("max_episodes", max_episodes)
        if max_episodes < 1:
            raise ValueError(f"max_episodes must be at least 1, got {max_episodes!r}.")
        self._total_max_episodes = self.max_episodes
        self.n_episodes = 0

    def _init_callback(self) -> None:
        self._total_max_episodes = self.max_episodes * self.training_env.num_envs

    def _on_step(self) -> bool:
        self.n_episodes += int(np.sum(self.locals["dones"]))
        keep_going = self.n_episodes < self._total_max_episodes
        if not keep_going and self.verbose >= 1:
            n_envs = self.training_env.num_envs
            mean = f" ({self.n_episodes / n_envs:.2f} per environment)" if n_envs > 1 else ""
            print(
                f"Training stops after {self.num_timesteps} steps: {type(self.model).__name__} has played "
                f"{self.n_episodes} episodes{mean}, as max_episodes={self.max_episodes} asks"
            )
        return keep_going
