"""The report of a study: a table of trials, a page of plots, and the best settings as a file for `polyak train`."""

from __future__ import annotations

import html
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import write_yaml
from polyak.zoo.report.groups import differing, flatten
from polyak.zoo.tuning import studies

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from optuna import Study
    from optuna.trial import FrozenTrial

_BACKGROUND = ("worker", "lost", "surplus")


def best_trial(study: Study) -> FrozenTrial | None:
    """Return the complete trial with the highest score, of equal ones the one that got there sooner; None if none."""
    from optuna.trial import TrialState

    complete = [trial for trial in studies.counted(study) if trial.state == TrialState.COMPLETE]
    return max(complete, key=lambda t: (t.values[0], sum(t.intermediate_values.values())), default=None)


def settings_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the settings that a trial was trained with; ZooError if it ended before they were drawn."""
    settings = trial.user_attrs.get("settings")
    if settings is None:
        raise ZooError(
            f"Trial {trial.number} has no settings: it ended before any were drawn. Take another --trial-id."
        )
    return dict(settings)


def setting_lines(settings: dict[str, Any]) -> list[str]:
    """Return the settings that a trial was trained with as lines of YAML, as `polyak train` takes them.

    Optuna draws other numbers: exponents of two, places in a list, 1 - gamma.
    """
    return [f"    {line}" for line in write_yaml(settings).splitlines()]


def write_settings(path: Path, study: Study, trial: FrozenTrial, env: str) -> None:
    """Write the settings of a trial as a file for ``polyak train --conf-file``."""
    value = "no score" if trial.value is None else f"score {trial.value:.6g}"
    remark = f"# Trial {trial.number} of the study {study.study_name}: {value}.\n"
    with replacing(path) as file:
        file.write((remark + write_yaml({env: settings_of(trial)})).encode())


def write_table(path: Path, study: Study) -> None:
    """Write one row per trial: number, value, dates, Optuna's draws, settings, attributes and state.

    ``params_*`` are Optuna's draws; ``settings_*`` the options of `polyak train` that differ between trials.
    """
    import pandas as pd

    table = study.trials_dataframe(
        attrs=("number", "value", "datetime_start", "datetime_complete", "duration", "params", "user_attrs", "state")
    )
    kept = {trial.number for trial in studies.counted(study)}
    table = table[table["number"].isin(kept)].reset_index(drop=True)
    table = table.drop(columns=[f"user_attrs_{name}" for name in (*_BACKGROUND, "settings")], errors="ignore")
    flat = [flatten(trial.user_attrs.get("settings", {}), "settings_") for trial in studies.counted(study)]
    settings = pd.DataFrame([{name: row.get(name) for name in differing(flat)} for row in flat], index=table.index)
    table = pd.concat([table, settings], axis=1)
    with replacing(path) as file:
        file.write(table.to_csv().encode())


def write_plots(path: Path, study: Study) -> list[str]:
    """Write one page with Optuna's plots, which needs no network; returns the names of those that could not be drawn.

    History of the scores, importance of the parameters (PED-ANOVA), a slice for each parameter, parallel coordinates.
    """
    drawn, missing = [], []
    for name, draw in _plots(study):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                drawn.append(draw())
        except (ValueError, RuntimeError, ZeroDivisionError):  # too few trials, or all with the same score
            missing.append(name)
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0, config={"displaylogo": False})
        for number, figure in enumerate(drawn)
    ]
    title = html.escape(study.study_name)
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
    page = f"{head}<body>{_best_settings(study)}{''.join(parts)}</body></html>\n"
    with replacing(path) as file:
        file.write(page.encode())
    return missing


def _best_settings(study: Study) -> str:
    """Return the best trial in the units of `polyak train`, and the plots' other names of its settings."""
    best = best_trial(study)
    if best is None:
        return ""
    lines = "\n".join(setting_lines(settings_of(best)))
    return (
        f"<h2>Trial {best.number}, the best: score {best.value:.6g}</h2><pre>{html.escape(lines)}</pre>"
        "<p>The plots show what was drawn: <code>n_steps_pow</code> 6 is n_steps 2<sup>6</sup> = 64, "
        "<code>..._index</code> counts the choices of a list from 0, and <code>one_minus_gamma</code> 0.01 is gamma "
        "0.99.</p>"
    )


def _plots(study: Study) -> Iterator[tuple[str, Callable[[], go.Figure]]]:
    from optuna import visualization
    from optuna.importance import PedAnovaImportanceEvaluator

    yield "history", lambda: visualization.plot_optimization_history(study)
    yield (
        "importances",
        lambda: visualization.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator()),
    )
    yield "slice", lambda: visualization.plot_slice(study)
    yield "parallel coordinates", lambda: visualization.plot_parallel_coordinate(study)
