"""The parts of a study: scores and their bounds, work that pauses, samplers, and the decision to prune."""

import math
from typing import Any

import numpy as np
import optuna
import pytest

from polyak.zoo.tuning.options import PRUNERS, SAMPLERS
from polyak.zoo.tuning.score import hopeful_score, score
from polyak.zoo.tuning.search import make_pruner, make_sampler, report, should_prune


def test_scores_of_seeds() -> None:
    returns = [np.array([value - 1.0, value + 1.0]) for value in (0.0, 1.0, 2.0, 3.0, 100.0)]
    assert score(returns, "median") == 2.0
    assert score(returns, "iqm") == 2.0
    assert score(returns[:4], "iqm") == 1.5
    assert score(returns[3:], "median") == 51.5


def test_the_bound_of_a_score() -> None:
    returns = [np.array([1.0, 3.0]), np.array([4.0, 4.0])]
    # means 2 and 4: standard error 1; Student's t with one degree of freedom is 1 at 75 %
    assert hopeful_score(returns, "iqm", 0.75) == pytest.approx(3.0 + 1.0)
    assert hopeful_score(returns, "iqm", 0.5) == pytest.approx(3.0)
    three = [np.array([value]) for value in (0.0, 1.0, 2.0)]
    iqm, median = (hopeful_score(three, kind, 0.9) - 1.0 for kind in ("iqm", "median"))
    assert median == pytest.approx(iqm * math.sqrt(math.pi / 2))
    assert hopeful_score([np.array([1.0, 3.0])], "median", 0.75) == pytest.approx(2.0 + 1.0)
    assert hopeful_score([np.array([5.0])], "median", 0.9) == 5.0


def quadratic(trial: optuna.Trial) -> float:
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return -((trial.suggest_float("x", -1, 1) - 0.3) ** 2) - trial.suggest_int("n", 0, 3) - (kind == "b")


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_samplers_draw_alike_with_equal_seeds(name: str) -> None:
    def params(*seed: int) -> list[dict[str, Any]]:
        study = optuna.create_study(direction="maximize")
        for number in range(6):
            study.sampler = make_sampler(name, (*seed, number), n_startup_trials=4)
            trial = study.ask()
            study.tell(trial, quadratic(trial))
        return [trial.params for trial in study.trials]

    one = params(1, 0)
    assert one == params(1, 0)
    assert one != params(1, 1), "another process draws something else"
    assert len({trial["x"] for trial in one}) == 6, "trials differ"


def values_of(pruner: str, curves: list[list[float]], bounds: list[float], **how: Any) -> int:
    """Let trials with these values end, then ask about one with `bounds`; returns the step it is pruned at, or 0."""
    sampler = optuna.samplers.RandomSampler(0)
    study = optuna.create_study(study_name="b", direction="maximize", sampler=sampler)  # hyperband hashes the name
    study.pruner = make_pruner(pruner, **{"n_startup_trials": 2, "n_evaluations": 9, "percentile": 25.0, **how})
    for curve in curves:
        trial = study.ask()
        for step, value in enumerate(curve, 1):
            report(trial, step, value, value)
            should_prune(study, trial)  # halving keeps its rungs here
        study.tell(trial, curve[-1])
    trial = study.ask()
    for step, bound in enumerate(bounds, 1):
        report(trial, step, 0.0, bound)
        if should_prune(study, trial):
            return step
    return 0


@pytest.mark.parametrize("pruner", PRUNERS)
def test_a_trial_is_pruned_by_what_it_could_be(pruner: str) -> None:
    others = [[5.0] * 9] * 4
    bad = values_of(pruner, others, [1.0] * 9)
    assert bad == {"median": 4, "percentile": 4, "none": 0}.get(pruner, bad)
    assert (bad > 0) == (pruner != "none")
    assert values_of(pruner, others, [9.0] * 9) == 0, "its score is as low, but it may be better than all"


def test_how_much_a_pruner_keeps() -> None:
    others = [[float(value)] * 9 for value in (1, 2, 3, 4, 5, 6, 7, 8)]
    assert values_of("median", others, [5.5] * 9) == 0
    assert values_of("percentile", others, [5.5] * 9) == 4
    assert values_of("percentile", others, [5.5] * 9, percentile=50.0) == 0
    assert values_of("median", others, [0.0] * 9, n_startup_trials=9) == 0


def test_a_score_that_is_not_finite_is_refused() -> None:
    trial = optuna.create_study().ask()
    with pytest.raises(ValueError, match="evaluation 2 gave nan"):
        report(trial, 2, float("nan"), 1.0)
