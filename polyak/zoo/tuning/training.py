"""A trial: an agent for each seed or fold is trained with the same settings; all are evaluated at the same steps."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.callbacks.callback import BaseCallback
from polyak.envs import sync_envs_normalization
from polyak.envs.wrappers.normalize import normalized_like
from polyak.evaluation.evaluation_log import Evaluations
from polyak.evaluation.in_environments import EvaluationResult, evaluate
from polyak.evaluation.undisturbed import undisturbed
from polyak.writing import replacing
from polyak.zoo.environments import make_envs
from polyak.zoo.literals import parse_pairs
from polyak.zoo.models import new_model
from polyak.zoo.plain_yaml import plain
from polyak.zoo.registry import is_atari_id
from polyak.zoo.settings import Settings
from polyak.zoo.tuning.lockstep import Paused
from polyak.zoo.tuning.problem import Problem
from polyak.zoo.tuning.score import hopeful_score, score
from polyak.zoo.tuning.search import report, should_prune

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

    from polyak.envs import VecEnv
    from polyak.experience import Dataset

#: Distance between the seeds of training and evaluation environments, and between those of two evaluations.
EVAL_SEED_OFFSET = 1_000_000
EVAL_SEED_STEP = 10_007
#: Steps after which an episode of an environment without a time limit is cut in an evaluation.
LONGEST_EPISODE = 30_000


class Pruned(Exception):
    """The trial was pruned."""


def run(study: Study, trial: Trial, problem: Problem) -> float:
    """Train with the settings of a trial and return its score: that of its last evaluation.

    Training k of a trial has the study's seed plus k, in every trial; and evaluation i plays the same episodes in all
    of them. So trials are compared under equal conditions.

    Raises:
        Pruned: a report was not good enough for the study's pruner.
        Exception: any error of training; ValueError if a score is not finite.
    """
    options = problem.options
    settings = problem.propose(trial)
    trial.set_user_attr("settings", plain(settings.raw))
    agents = _agents(problem, settings, trial)
    value = float("nan")
    with ExitStack() as stack:
        paused = [stack.enter_context(closing(Paused[EvaluationResult](agent.run))) for agent in agents]
        for step in range(1, problem.n_evaluations + 1):
            results = [one.resume() for one in paused]
            returns = [result.returns for result in results if result is not None]
            if len(returns) < len(paused):
                raise RuntimeError("the training ended before its last evaluation: a callback stopped it.")
            value = score(returns, problem.objective)
            report(trial, step, value, hopeful_score(returns, problem.objective, options.prune_confidence))
            if step < problem.n_evaluations and should_prune(study, trial):
                raise Pruned
        trial.set_user_attr("returns_of_seeds", [float(np.mean(episodes)) for episodes in returns])
    return value


def _agents(problem: Problem, settings: Settings, trial: Trial) -> list[TrialRun]:
    """An agent for each seed, or for each fold of a dataset."""
    options = problem.options
    place = Path(options.optimization_log_path) / f"trial_{trial.number}" if options.optimization_log_path else None
    if problem.dataset is not None:
        return _folds(problem, problem.dataset, settings, place)
    several = place is not None and options.seeds > 1
    folders = [place / f"seed_{number}" if place and several else place for number in range(options.seeds)]
    return [TrialRun(problem, settings, problem.seed + number, folder) for number, folder in enumerate(folders)]


def _folds(problem: Problem, dataset: Dataset, settings: Settings, place: Path | None) -> list[TrialRun]:
    """An agent for each fold: all learn with the study's seed, and the same episodes are held out in every trial."""
    return [
        Fold(problem, settings, problem.seed, place and place / f"fold_{number}", learned, held_out)
        for number, (learned, held_out) in enumerate(dataset.folds(problem.options.folds, problem.seed))
    ]


@dataclass
class TrialRun:
    """One agent of a trial: exactly the budget of steps, with evaluations spread over it evenly, the last at its end.

    A rollout that the budget does not hold is left unlearned, so that settings are not rewarded for taking more steps.
    """

    problem: Problem
    settings: Settings
    seed: int
    log_folder: Path | None

    def run(self, turn: Paused[EvaluationResult]) -> None:
        """Train, and pause with the result of each evaluation; ends early if requested."""
        options, problem = self.problem.options, self.problem
        kwargs = problem.env_kwargs
        eval_kwargs = {**kwargs, **parse_pairs(options.eval_env_kwargs, "--eval-env-kwargs")}
        with ExitStack() as stack:
            env = self._make_envs(stack, self.settings.n_envs, self.seed, kwargs)
            eval_env = self._make_envs(stack, options.n_eval_envs, self.seed + EVAL_SEED_OFFSET, eval_kwargs)
            model = self.model_in(env)
            self.learn(model, normalized_like(eval_env, model.get_env()), turn)

    def model_in(self, env: VecEnv | Dataset) -> Any:
        """The untrained agent."""
        problem = self.problem
        how: dict[str, Any] = {"seed": self.seed, "device": problem.options.device, "verbose": 0}
        return new_model(problem.algorithm, self.settings, env, **how)

    def learn(self, model: Any, evaluated_in: Any, turn: Paused[EvaluationResult]) -> None:
        """Train, with evaluations."""
        log = None if self.log_folder is None else EvaluationLog(self.log_folder)
        evaluations = TrialEvaluations(self, model, evaluated_in, turn, log)
        callbacks: list[BaseCallback] = [spec() for spec in self.settings.callback]
        model.learn(self.problem.task.n_timesteps, callback=[*callbacks, evaluations], log_interval=None)
        evaluations.finish()

    def _make_envs(self, stack: ExitStack, n_envs: int, seed: int, kwargs: dict[str, Any]) -> VecEnv:
        how: dict[str, Any] = {"env_kwargs": kwargs, "vec_env": self.problem.options.vec_env}
        env = make_envs(self.problem.environment, self.settings, n_envs, seed=seed, **how)
        stack.callback(env.close)
        return env

    def evaluate(self, model: Any, env: Any, number: int) -> EvaluationResult:
        """Play the episodes of evaluation `number`; the training's generators of random numbers do not notice."""
        if model.get_vec_normalize_env() is not None:
            sync_envs_normalization(model.get_env(), env)
        return evaluate(
            model,
            env,
            self.problem.options.eval_episodes,
            deterministic=not is_atari_id(self.problem.environment.name),
            seed=self.seed + EVAL_SEED_OFFSET + EVAL_SEED_STEP * number,
            max_steps_per_episode=max(LONGEST_EPISODE, self.problem.task.n_timesteps),
        )


@dataclass
class Fold(TrialRun):
    """One agent of a trial on a dataset, which learns from all episodes but those that it is scored on."""

    learned: Dataset
    held_out: Dataset

    def run(self, turn: Paused[EvaluationResult]) -> None:
        """Train, and pause with the score of each evaluation; ends early if requested."""
        self.learn(self.model_in(self.learned), self.held_out, turn)

    def evaluate(self, model: Any, env: Any, number: int) -> EvaluationResult:
        """The score on the held-out episodes, as if it were the return of one."""
        with undisturbed(model):
            score = self.problem.score(model, env, self.problem.task.n_timesteps)
        return EvaluationResult(np.array([score]), np.array([len(env)]))


class TrialEvaluations(BaseCallback):
    """Evaluates an agent as it learns, passes on each result, and ends training on request or at its budget."""

    _reads_locals = False

    def __init__(
        self,
        training: TrialRun,
        model: Any,
        env: Any,
        turn: Paused[EvaluationResult],
        log: EvaluationLog | None,
    ) -> None:
        super().__init__()
        self.training, self.model, self.env, self.turn, self.log = training, model, env, turn, log
        self.budget, self.n_evaluations = training.problem.task.n_timesteps, training.problem.n_evaluations
        self.done = 0
        self.proceeds = True

    def _on_step(self) -> bool:
        if self.turn.stopped or self.num_timesteps > self.budget:
            return False
        # The last one waits for the update that may still follow.
        while self.proceeds and self.done < self.n_evaluations - 1 and self.num_timesteps >= self._due(self.done + 1):
            self._evaluate(self._due(self.done + 1))
        return self.proceeds

    def finish(self) -> None:
        """Evaluate at the end of training, unless it was ended before."""
        if self.proceeds and self.num_timesteps >= self.budget:
            self._evaluate(self.budget)

    def _due(self, number: int) -> int:
        return self.budget * number // self.n_evaluations

    def _evaluate(self, timesteps: int) -> None:
        self.done += 1
        result = self.training.evaluate(self.model, self.env, self.done)
        if self.log is not None:
            self.log.add(timesteps, result, self.model)
        self.proceeds = self.turn.pause(result)


class EvaluationLog:
    """The files of a trial: ``evaluations.npz``, keyed as by `polyak train`, and ``best_model.zip``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evaluations = Evaluations([], [], [], [], -np.inf)

    def add(self, timesteps: int, result: EvaluationResult, model: Any) -> None:
        """Write an evaluation, and the model if it is the best one so far."""
        before = self.evaluations
        before.timesteps.append(timesteps)
        before.results.append(result.returns.tolist())
        before.lengths.append(result.lengths.tolist())
        if result.successes is not None:
            before.successes.append(result.successes.tolist())
        self.evaluations = before._replace(best=max(before.best, result.mean))
        with replacing(self.folder / "evaluations.npz") as file:
            np.savez(file, **self.evaluations.arrays())
        if result.mean > before.best:
            model.save(self.folder / "best_model.zip")
