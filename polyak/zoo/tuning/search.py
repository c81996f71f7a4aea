"""Samplers of settings, and pruning of trials."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

_BOUNDS = "upper_bounds"


def make_sampler(name: str, seed: Sequence[int], n_startup_trials: int, parallel: bool = False) -> BaseSampler:
    """Make the sampler called `name`.

    A sampler is made for each trial, with a seed derived from the study's seed, the process and the number of earlier
    trials. So a continued study draws the same values as an uninterrupted one, and two processes never draw the same.

    Args:
        name: ``"tpe"`` (also ``"auto"``), ``"random"``, ``"cmaes"`` or ``"gp"``.
        seed: whole numbers, mixed into one.
        n_startup_trials: trials drawn at random first.
        parallel: let TPE avoid the values that other processes are trying.
    """
    import numpy as np
    from optuna import samplers
    from optuna.exceptions import ExperimentalWarning

    mixed = int(np.random.SeedSequence(tuple(seed)).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if name == "random":
            return samplers.RandomSampler(mixed)
        if name == "cmaes":
            return samplers.CmaEsSampler(n_startup_trials=n_startup_trials, seed=mixed)
        if name == "gp":
            return samplers.GPSampler(n_startup_trials=n_startup_trials, seed=mixed)
        return samplers.TPESampler(
            n_startup_trials=n_startup_trials, seed=mixed, multivariate=True, group=True, constant_liar=parallel
        )


def make_pruner(name: str, n_startup_trials: int, n_evaluations: int, percentile: float) -> BasePruner:
    """Make the pruner called `name`, for trials that report `n_evaluations` values, numbered from 1.

    Median and percentile spare the first third of a training and the first `n_startup_trials` trials.
    """
    from optuna import pruners

    warm_up = n_evaluations // 3 + 1  # the first that may end a trial, counted from 1
    if name == "median":
        return pruners.MedianPruner(n_startup_trials, warm_up)
    if name == "percentile":
        return pruners.PercentilePruner(percentile, n_startup_trials, warm_up)
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=n_evaluations, reduction_factor=3)
    if name == "halving":
        return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4)
    return pruners.NopPruner()


def report(trial: Trial, step: int, value: float, bound: float) -> None:
    """Report the score of an evaluation, and the upper end of its interval.

    Raises:
        ValueError: the score is not finite.
    """
    if not math.isfinite(value):
        raise ValueError(f"evaluation {step} gave {value}: the agent or the environment has diverged.")
    trial.report(value, step)
    trial.set_user_attr(_BOUNDS, {**trial.user_attrs.get(_BOUNDS, {}), str(step): bound})


def should_prune(study: Study, trial: Trial) -> bool:
    """Return whether the study's pruner would prune the trial, with its upper confidence bounds as values.

    So a trial is pruned only if even its upper bound, at the chosen confidence, is below the pruner's threshold;
    unlucky seeds or episodes alone are not enough. Median and percentile compare with the plain scores of other trials.
    Halving and hyperband keep the value of a trial in each rung, so they compare bounds with bounds.
    """
    frozen = next(other for other in study.get_trials(deepcopy=False) if other.number == trial.number)
    return study.pruner.prune(study, hopeful(frozen))


def hopeful(trial: FrozenTrial) -> FrozenTrial:
    """Copy a trial, its values replaced by the upper ends of their intervals."""
    bounds: dict[str, Any] = trial.user_attrs.get(_BOUNDS, {})
    twin = copy.copy(trial)
    twin.intermediate_values = {step: bounds.get(str(step), value) for step, value in trial.intermediate_values.items()}
    return twin
