"""Trials on a dataset: each fold of its episodes is held out once, and scores an agent that learned from the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.evaluation.in_environments import EvaluationResult
from polyak.evaluation.undisturbed import undisturbed
from polyak.zoo.tuning.training import Training

if TYPE_CHECKING:
    from polyak.data import Dataset
    from polyak.zoo.settings import Settings
    from polyak.zoo.tuning.lockstep import Paused
    from polyak.zoo.tuning.problem import Problem


@dataclass
class Fold(Training):
    """One agent of a trial on a dataset, which learns from all episodes but those that it is scored on."""

    learned: Dataset
    held_out: Dataset

    def run(self, turn: Paused[EvaluationResult]) -> None:
        """Train, and pause with the score of each evaluation; ends early if asked to stop."""
        self.learn(self.model_in(self.learned), self.held_out, turn)

    def evaluate(self, model: Any, env: Any, number: int) -> EvaluationResult:
        """The score on the held-out episodes, as if it were the return of one."""
        with undisturbed(model):
            score = self.problem.score(model, env, self.problem.task.n_timesteps)
        return EvaluationResult(np.array([score]), np.array([len(env)]))


def folds_of(problem: Problem, settings: Settings, log_folder: Path | None) -> list[Training]:
    """The agents of a trial: all learn with the study's seed, and the same episodes are held out in every trial."""
    assert problem.dataset is not None
    parts = problem.dataset.folds(problem.options.folds, problem.seed)
    folders = [None if log_folder is None else log_folder / f"fold_{k}" for k in range(problem.options.folds)]
    return [
        Fold(problem, settings, problem.seed, folder, learned, held_out)
        for folder, (learned, held_out) in zip(folders, parts, strict=True)
    ]
