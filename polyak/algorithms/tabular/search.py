"""Search ranges of tabular algorithms: learning rates, exploration, lookahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyak.algorithm_info import Search, SearchPart, Task, tune
from polyak.algorithm_info.search import Values

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


def _learning_rate(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
    averages = trial.suggest_categorical("averages", [False, True])
    return {"learning_rate": "1/n" if averages else tune.draw_rate(trial, "learning_rate", 0.01, 1.0)}


def _initial_value(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
    return {"initial_value": float(trial.suggest_categorical("initial_value", [0, 1, 10]))}


def _lookahead(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
    kind = trial.suggest_categorical("lookahead", ["one step", "n steps", "traces"])
    if kind == "n steps":
        return {"n_steps": trial.suggest_int("n_steps", 2, 8), "lambda_": 0.0}
    if kind == "traces":
        kinds = ["accumulating", "replacing", "dutch"]
        lambda_ = tune.draw_uniform(trial, "lambda_", 0.1, 0.99)
        return {"n_steps": 1, "lambda_": lambda_, "traces": trial.suggest_categorical("traces", kinds)}
    return {"n_steps": 1, "lambda_": 0.0}


EPSILON = tune.rate(0.01, 1.0, "epsilon")
"""Exploration rates: constant or decreasing."""
TABLE = Search(
    SearchPart("learning_rate", _learning_rate), tune.discount(), EPSILON, SearchPart("initial_value", _initial_value)
)
"""Averages or constant step sizes, with neutral, optimistic or very optimistic initial values."""
LOOKAHEAD = SearchPart("lookahead", _lookahead)
"""One step, n steps, or eligibility traces."""
