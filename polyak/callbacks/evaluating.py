"""Evaluations of a model during training, and the best model."""

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from polyak.callbacks.callback import BaseCallback, CallbackFunction, EventCallback
from polyak.callbacks.periodic import Period, Unit
from polyak.callbacks.saving import FileFormat, file_saver
from polyak.envs import VecEnv, sync_envs_normalization
from polyak.evaluation.evaluation_log import Evaluations, read_evaluations
from polyak.evaluation.in_environments import as_vector, evaluate_policy, fitted
from polyak.evaluation.shared_environments import check_not_in_use, share_environments
from polyak.evaluation.undisturbed import undisturbed
from polyak.hyperparameters.declaration import whole
from polyak.seeding import derived_seed
from polyak.warning import warn_user
from polyak.writing import make_folder, replacing


class EvalCallback(EventCallback):
    """Evaluate the model every ``eval_freq`` calls, that is ``eval_freq * n_envs`` environment steps.

    Each evaluation logs ``eval/mean_reward``, ``eval/mean_ep_length`` and, if episodes end with
    ``info["is_success"]``, ``eval/success_rate``.

    Evaluation does not affect training: with and without it, training gives bitwise the same results (see
    :func:`~polyak.evaluation.undisturbed.undisturbed`). If the model has a seed, every evaluation is seeded by it and
    by the number of environment steps (see :func:`evaluation_seed`): equal seeds give equal evaluations, each of which
    can be repeated.

    If training resumes (``learn(reset_num_timesteps=False)`` of a model that has been trained before), a callback that
    has not evaluated yet continues the ``evaluations.npz`` in ``log_path``, and replaces ``best_model.zip`` only by a
    better one. If the return of that model is unknown, its file is renamed, with a warning. Otherwise both files are
    replaced.

    Args:
        eval_env: where to evaluate, wrapped like the training environment; or a registered name: one such environment,
            normalised if the training environment is.
        callback_on_new_best: stepped when the mean return is the best so far.
        callback_after_eval: stepped after every evaluation.
        n_eval_episodes: episodes of an evaluation.
        eval_freq: calls (or, see ``unit``, environment steps) between two evaluations; 0 or less: no evaluations.
        log_path: folder of ``evaluations.npz`` (``timesteps`` [n], ``results`` and ``ep_lengths`` [n, episodes], and
            ``successes`` if known); ``None`` writes none.
        best_model_save_path: folder of ``best_model.zip``; ``None`` writes none.
        deterministic: the policy's best action instead of a sample.
        render: show the evaluation.
        verbose: 1 prints the results.
        warn: warn if returns are not measured by a ``Monitor``, or if the environments are wrapped differently.
        unit: ``"calls"`` counts steps of the vector of environments, ``"timesteps"`` those of all environments.
        seed: replaces the model's seed.
        max_steps_per_episode: end an evaluation episode after this many steps, with a warning.
        file_format: ``"sb3"`` writes the best model for Stable-Baselines3.

    Raises:
        ValueError: ``n_eval_episodes`` is less than 1, or an unknown ``unit``, ``file_format`` or name; when training
            begins, a named environment whose spaces differ from the model's, or a damaged ``evaluations.npz`` to
            continue.
        AssertionError: the training environment is normalised and ``eval_env`` is not.
    """

    _reads_locals = False
    use_masking = True
    """Whether to apply the environment's action masks, if the model supports them."""

    def __init__(
        self,
        eval_env: gym.Env | VecEnv | str,
        callback_on_new_best: BaseCallback | CallbackFunction | None = None,
        callback_after_eval: BaseCallback | CallbackFunction | None = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10000,
        log_path: str | os.PathLike[str] | None = None,
        best_model_save_path: str | os.PathLike[str] | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
        *,
        unit: Unit = "calls",
        seed: int | None = None,
        max_steps_per_episode: int | None = None,
        file_format: FileFormat = "polyak",
    ) -> None:
        super().__init__(callback_after_eval, verbose=verbose)
        self._saver = file_saver(file_format)
        self.n_eval_episodes = whole("n_eval_episodes", n_eval_episodes)
        self.eval_freq = whole("eval_freq", eval_freq)
        if n_eval_episodes < 1:
            raise ValueError(f"n_eval_episodes must be at least 1, got {n_eval_episodes!r}.")
        self.callback_on_new_best = self._adopt(callback_on_new_best)
        self.eval_env = as_vector(eval_env)
        self._env_name = eval_env if isinstance(eval_env, str) else None
        self.best_mean_reward = -np.inf
        self.last_mean_reward = -np.inf
        self.deterministic = deterministic
        self.render = render
        self.warn = warn
        self.seed = seed
        self.max_steps_per_episode = max_steps_per_episode
        self.best_model_save_path = None if best_model_save_path is None else os.path.expanduser(best_model_save_path)
        self.log_path = None if log_path is None else os.path.join(os.path.expanduser(log_path), "evaluations")
        self.evaluations_timesteps: list[int] = []
        self.evaluations_results: list[list[float]] = []
        self.evaluations_length: list[list[int]] = []
        self.evaluations_successes: list[list[bool]] = []
        self._is_success_buffer: list[bool] = []
        self._interval = Period(unit)
        self._resumed_at = 0
        self._put_aside: set[Path] = set()
        """Files of an earlier run that are renamed before new ones replace them."""

    def _children(self) -> list[BaseCallback]:
        new_best = self.callback_on_new_best
        return super()._children() + ([] if new_best is None else [new_best])

    def _init_callback(self) -> None:
        training_env = self.model.get_env()  # None in offline training
        if self._env_name is not None:
            self.eval_env = fitted(self._env_name, self.eval_env, training_env, training_env or self.model)
        elif training_env is not None and not isinstance(training_env, type(self.eval_env)):
            warn_user(
                f"eval_env is wrapped in another way than the training environment: {self.eval_env} and "
                f"{training_env}. Wrap both alike, unless the difference is meant.",
                UserWarning,
            )
        check_not_in_use(self.eval_env)
        if training_env is not None and share_environments(self.eval_env, training_env):
            warn_user(
                "eval_env is the training environment itself: each evaluation cuts the episodes that training is in, "
                "which count as truncated. Make a second environment for evaluation.",
                UserWarning,
            )
        if self.best_model_save_path is not None:
            make_folder(self.best_model_save_path, "best_model_save_path")
        if self.log_path is not None:
            make_folder(os.path.dirname(self.log_path) or ".", "log_path")

    def _on_training_start(self) -> None:
        self._interval.restart(self, self.eval_freq)
        if self.num_timesteps > 0 and not self.evaluations_timesteps and self.best_mean_reward == -np.inf:
            self._continue_files()
        super()._on_training_start()

    @property
    def _log_file(self) -> Path | None:
        return None if self.log_path is None else Path(self.log_path + ".npz")

    @property
    def _best_file(self) -> Path | None:
        return None if self.best_model_save_path is None else Path(self.best_model_save_path, "best_model.zip")

    def _continue_files(self) -> None:
        """Continue the files of an earlier run's evaluations, when training resumes."""
        self._resumed_at = self.num_timesteps
        log, best = self._log_file, self._best_file
        if log is not None and log.is_file():
            self._continue_log(log)
        if best is None:
            return
        if not best.is_file():  # nothing can be lost, and some model must be saved
            self.best_mean_reward = -np.inf
        elif self.best_mean_reward == -np.inf:
            self._set_aside(best, "the return of the model in it is not known: there is no evaluations.npz in log_path")

    def _continue_log(self, log: Path) -> None:
        earlier = read_evaluations(log)
        self.best_mean_reward = earlier.best
        kept = earlier.until(self.num_timesteps)
        if any(len(returns) != self.n_eval_episodes for returns in kept.results):
            episodes = len(kept.results[0])
            self._set_aside(log, f"its evaluations have {episodes} episodes, those to come {self.n_eval_episodes}")
            return
        self.evaluations_timesteps, self.evaluations_results = kept.timesteps, kept.results
        self.evaluations_length, self.evaluations_successes = kept.lengths, kept.successes
        if self.verbose >= 1:
            print(f"Continuing {log}: best mean reward so far {self.best_mean_reward:.2f}")

    def _set_aside(self, path: Path, reason: str) -> None:
        self._put_aside.add(path)
        warn_user(
            f"training resumes, and {str(path)!r} is not continued: {reason}. It is kept as "
            f"{self._aside(path).name!r} when another takes its place.",
            UserWarning,
        )

    def _aside(self, path: Path) -> Path:
        return path.with_name(f"{path.stem}_until_{self._resumed_at}_steps{path.suffix}")

    def _make_way(self, path: Path | None) -> None:
        """Rename an earlier file that must be kept, before a file of that name is written."""
        if path is not None and path in self._put_aside:
            self._put_aside.remove(path)
            os.replace(path, self._aside(path))

    def _log_success_callback(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Store whether an evaluation episode that ended was a success."""
        if locals_["done"] and (success := locals_["info"].get("is_success")) is not None:
            self._is_success_buffer.append(success)

    def _on_step(self) -> bool:
        if not self._interval.due(self.eval_freq, self):
            return True
        if (training_env := self.model.get_env()) is not None:
            sync_envs_normalization(training_env, self.eval_env)
        returns, lengths = self._evaluate()
        self._write_evaluations(returns, lengths)
        self._log_evaluation(returns, lengths)
        keep_going = True
        if self.last_mean_reward > self.best_mean_reward:
            keep_going = self._on_new_best()
        return keep_going and self._on_event()

    def _evaluate(self) -> tuple[list[float], list[int]]:
        """Returns the returns and lengths of the evaluation episodes."""
        self._is_success_buffer = []
        seed = self.seed if self.seed is not None else getattr(self.model, "seed", None)
        seed = None if seed is None else evaluation_seed(seed, self.num_timesteps)
        with undisturbed(self.model, seed):
            if seed is not None:
                self.eval_env.seed(seed)
            return evaluate_policy(
                self.model,
                self.eval_env,
                n_eval_episodes=self.n_eval_episodes,
                render=self.render,
                deterministic=self.deterministic,
                return_episode_rewards=True,
                warn=self.warn,
                callback=self._log_success_callback,
                max_steps_per_episode=self.max_steps_per_episode,
                use_masking=self.use_masking,
            )  # type: ignore[return-value]

    def _write_evaluations(self, returns: list[float], lengths: list[int]) -> None:
        if (log := self._log_file) is None:
            return
        self.evaluations_timesteps.append(self.num_timesteps)
        self.evaluations_results.append(returns)
        self.evaluations_length.append(lengths)
        if self._is_success_buffer:
            self.evaluations_successes.append(self._is_success_buffer)
        columns = self.evaluations_timesteps, self.evaluations_results, self.evaluations_length
        evaluations = Evaluations(*columns, self.evaluations_successes, self.best_mean_reward)
        self._make_way(log)
        # A program that reads the file at any time must not read a partial one.
        with replacing(log) as file:
            np.savez(file, **evaluations.arrays())

    def _log_evaluation(self, returns: list[float], lengths: list[int]) -> None:
        mean_return, mean_length = float(np.mean(returns)), float(np.mean(lengths))
        self.last_mean_reward = mean_return
        self.logger.record("eval/mean_reward", mean_return)
        self.logger.record("eval/mean_ep_length", mean_length)
        if self.verbose >= 1:
            print(
                f"Eval num_timesteps={self.num_timesteps}, episode_reward={mean_return:.2f} +/- {np.std(returns):.2f}"
            )
            print(f"Episode length: {mean_length:.2f} +/- {np.std(lengths):.2f}")
        if self._is_success_buffer:
            success_rate = float(np.mean(self._is_success_buffer))
            self.logger.record("eval/success_rate", success_rate)
            if self.verbose >= 1:
                print(f"Success rate: {100 * success_rate:.2f}%")
        # TensorBoard uses the number of steps as its axis.
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)

    def _on_new_best(self) -> bool:
        if self.verbose >= 1:
            print("New best mean reward!")
        if self.best_model_save_path is not None:
            self._make_way(self._best_file)
            getattr(self.model, self._saver)(os.path.join(self.best_model_save_path, "best_model"))
        self.best_mean_reward = self.last_mean_reward
        return True if self.callback_on_new_best is None else self.callback_on_new_best.on_step()


def evaluation_seed(seed: int, num_timesteps: int) -> int:
    """Returns the seed of :class:`EvalCallback`'s evaluation after ``num_timesteps`` of a model seeded ``seed``.

    ``evaluate(model, env, n_episodes, seed=evaluation_seed(seed, num_timesteps))`` repeats it.
    """
    return derived_seed(seed, num_timesteps)
