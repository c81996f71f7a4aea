"""The content of the page about runs: plotly's figures of their curves, tables, and videos."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.curves import Curve, mean_of_runs, time_unit
from polyak.zoo.plots.look import style_of
from polyak.zoo.plots.results import Results, methods_of
from polyak.zoo.plots.statistics import Scores, aggregates, improvement, last_scores
from polyak.zoo.report.groups import differing, labels
from polyak.zoo.report.runs import BY_TIME, Problem, Run, find_runs, number, read_run, runner_row, stamps

Json = dict[str, Any]
#: Points of one curve: as many as a screen shows, fewer for very many runs.
MOST_POINTS, FEWEST_POINTS, ALL_POINTS = 300, 50, 40_000
_EVALUATED = "evaluated return"
_MANY = 6
"""So many groups are compared on a click only."""
_DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}


def read_page(logs: Path) -> Json:
    """Return the content of the page for ``<logs>``, ``<logs>/<algo>`` or a single run; runs are read if they changed.

    Raises ZooError if there is no such folder.
    """
    problems: list[Problem] = []
    top, runs = logs.resolve(), list[Run]()
    for path in find_runs(logs, problems):
        below = path.relative_to(top).parts
        name = "/".join(below if len(below) > 1 else [*path.parent.parts[-1:], path.name])
        runs.append(_unchanged(path, name))
        problems += runs[-1].problems
    group_runs(runs, top)
    films = sorted((film for run in runs for film in run.films), key=lambda film: -film["changed"])
    return {
        "title": title_of(runs) or top.name,
        "logs": logs.as_posix(),
        "runs": len(runs),
        "figures": figures_of(runs),
        "tables": tables_of(runs),
        "films": [dict(film) for film in films],
        "problems": problems,
    }


_READ: dict[Path, tuple[Any, Run]] = {}
"""Runs as they were read last, by folder, with the stamps of their files."""


def _unchanged(path: Path, name: str) -> Run:
    """Read a run, unless its files are as they were."""
    stamp = (name, stamps(path))
    if path not in _READ or _READ[path][0] != stamp:
        _READ[path] = (stamp, read_run(path, name))
    return _READ[path][1]


def group_runs(runs: Sequence[Run], top: Path) -> None:
    """Give every run the name of those that differ from it in nothing but their seed."""
    families: dict[tuple[str, ...], dict[str, dict[str, str]]] = defaultdict(dict)
    for run in runs:
        families[run.env, run.experiment(top), run.algo][json.dumps(run.counts, sort_keys=True)] = run.counts
    for run in runs:
        named = labels(families[run.env, run.experiment(top), run.algo], run.algo)
        run.group = f"{run.experiment(top)} {named[json.dumps(run.counts, sort_keys=True)]}".strip()


def title_of(runs: Sequence[Run]) -> str:
    """Return the algorithms and environments: ``PPO and SAC on CartPole-v1``; their numbers if there are many."""

    def enumerated(names: Sequence[str], what: str) -> str:
        if len(names) > 3 or max(map(len, names)) > 40:
            return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"
        return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]

    if not runs:
        return ""
    algos, envs = sorted({run.algo for run in runs}), sorted({run.env for run in runs})
    return f"{enumerated(algos, 'algorithm')} on {enumerated(envs, 'environment')}"


def figures_of(runs: Sequence[Run]) -> list[Json]:
    """Return a figure for each name of curves, with a panel for each environment: the traces of its groups."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(run.group for run in runs))}
    n_points = min(MOST_POINTS, max(FEWEST_POINTS, ALL_POINTS // max(len(runs), 1)))
    figures = []
    for name in dict.fromkeys(name for run in runs for name in run.curves):
        panels: dict[str, dict[str, dict[str, Curve]]] = defaultdict(lambda: defaultdict(dict))
        for run in runs:
            if name in run.curves:
                panels[run.env][run.group][run.name] = run.curves[name]
        lengths = (run.curves[name] for run in runs if name in run.curves)
        unit, scale = time_unit(lengths) if name.endswith(BY_TIME) else ("Steps", 1.0)
        drawn: list[Json] = []
        for env, groups in panels.items():
            data: list[Json] = []
            remarks: list[str] = []
            for group, members in groups.items():
                traces, remark = traces_of(members, group, style_of(numbers[group]), n_points, scale)
                data += traces
                remarks += [f"{group}: {remark}"] if remark else []
            drawn.append({"env": env, "data": data, "remarks": remarks})
        figures.append({"name": name, "x": unit, "panels": drawn})
    return figures


def traces_of(
    runs: Mapping[str, Curve], group: str, style: Mapping[str, Any], n_points: int, scale: float
) -> tuple[list[Json], str]:
    """Return a group's mean with the 95 % interval over its runs, each run as a thin line, and a remark on the mean."""
    from polyak.evaluation.intervals import mean_ends

    traces: list[Json] = []
    line = {"color": style["color"], "dash": _DASHES[style["linestyle"]]}

    def add(curve: Curve, y: np.ndarray, name: str, **how: Any) -> None:
        mode = "lines" if len(curve.x) > 1 else "markers"
        points = {"x": rounded(curve.x / scale, 8), "y": rounded(y), "mode": mode, "name": harmless(name), **how}
        traces.append({"type": "scatter", "legendgroup": harmless(group), "showlegend": False, **points})

    mean: Curve | None = None
    remark = "its runs have no stretch in common: each is drawn alone."
    with suppress(ZooError):
        mean = mean_of_runs(runs, group, most_points=n_points)
        remark = mean.remark
    if mean is not None and mean.n_runs > 1:
        edge: Json = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        for end, fill in zip(mean_ends(mean.values), ("none", "tonexty"), strict=True):
            add(mean, end, group, fill=fill, fillcolor=f"{style['color']}33", **edge)
    for name, curve in runs.items() if mean is None or len(runs) > 1 else ():
        thin = curve.thinned(n_points)
        add(thin, thin.y, name, line={**line, "width": 0.8}, opacity=0.5)
    if mean is not None:
        shown = f"{group} ({mean.n_runs})" if len(runs) > 1 else group
        add(mean, mean.y, shown, line={**line, "width": 2.2}, marker={"color": style["color"]})
    traces[-1]["showlegend"] = True
    return traces, remark


def harmless(text: str) -> str:
    """Return `text` for plotly, which reads a little HTML in names."""
    return html.escape(text, quote=False).replace("%{", "% {")


def rounded(values: np.ndarray, digits: int = 5) -> list[float | None]:
    """Return `values` with so many significant digits, as JSON has them: None for NaN and infinities."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values).tolist()]


def tables_of(runs: Sequence[Run]) -> list[Json]:
    """Return tables of text: title, headings, rows, and whether it is shown on a click only."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    machines, warnings = dict[str, list[str]](), dict[str, list[str]]()
    for run in runs:
        for name, value in run.settings.items():
            groups[f"{run.group}, {run.env}"][name].append(value)
        machines.setdefault(json.dumps(run.system), []).append(run.name)
        for text in run.warnings:
            warnings.setdefault(text, []).append(run.name)
    columns = {
        group: {name: " | ".join(dict.fromkeys(values)) for name, values in settings.items()}
        for group, settings in groups.items()
    }
    differ = differing([run.counts for run in runs])
    systems = {", ".join(names): json.loads(system) for system, names in machines.items()}
    facts = [{"Run": run.name, "Group": run.group, "State": run.state.description, **run.facts} for run in runs]
    elsewhere = [{"Run": run.name, **runner_row(runner)} for run in runs for runner in run.runners]
    return [
        _table("Runs", list(facts[0]) if facts else [], [list(row.values()) for row in facts]),
        *comparisons_of(runs),
        _table("Runners", list(elsewhere[0]) if elsewhere else [], [list(row.values()) for row in elsewhere]),
        _side_by_side("Settings that differ", {group: _only(found, differ) for group, found in columns.items()}),
        _side_by_side("All settings (those with -- were given on the command line)", columns, folded=True),
        _side_by_side("Machine and versions", systems, folded=True),
        _table("Warnings", ["Warning", "Runs"], [[text, ", ".join(names)] for text, names in warnings.items()]),
    ]


def comparisons_of(runs: Sequence[Run]) -> list[Json]:
    """Return tables that compare groups by the last evaluations of their runs (Agarwal et al., 2021, arXiv:2108.13264).

    They are the interquartile mean, and the probability that a run of one group ends higher than one of another: in
    each environment that has several groups, and over those in which every group has the same number of runs.
    """
    members: dict[str, dict[str, dict[str, Curve]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        if _EVALUATED in run.curves:
            members[run.env][run.group][run.name] = run.curves[_EVALUATED]
    results: Results = defaultdict(dict)
    for env, groups in members.items():
        for group, curves in groups.items() if len(groups) > 1 else ():
            with suppress(ZooError):  # of evaluations that have no stretch of steps in common
                results[env][group] = mean_of_runs(curves, group, evaluated=True)
    means: dict[str, dict[str, str]] = {group: {} for group in methods_of(results)}
    pairs: dict[str, dict[str, str]] = defaultdict(dict)
    alone = {env: {group: found.last[:, None] for group, found in known.items()} for env, known in results.items()}
    for name, scores in (alone | _over_environments(results)).items():
        for group, values in scores.items():
            means[group][name] = f"{_interquartile(tuple(map(tuple, values.tolist())))}, {_counted(len(values))}"
        for (first, second), share in improvement(scores).items():
            pairs[name][f"{first} > {second}"] = _with_ends(
                *(100 * end for end in (share.value, share.low, share.high))
            )
    many = len(means) > _MANY
    return [
        _side_by_side("Interquartile mean of the last evaluations (95 % interval)", means, many),
        _side_by_side("Probability, in %, that a run of the first ends higher (95 % interval)", pairs, many),
    ]


def _over_environments(results: Results) -> dict[str, Scores]:
    """Return scaled scores over the environments in which each group has the same number of runs, several; by name."""
    groups = methods_of(results)
    common = {
        env: known
        for env, known in results.items()
        if len(known) == len(groups) and np.ptp(np.concatenate([found.last for found in known.values()])) > 0
    }
    counts = [{known[group].n_runs for known in common.values()} for group in groups]
    if len(common) < 2 or any(len(count) > 1 or 1 in count for count in counts):
        return {}
    return {f"{len(common)} environments (0: their worst run, 1: their best)": last_scores(common)}


@lru_cache(4096)
def _interquartile(values: tuple[tuple[float, ...], ...]) -> str:
    """Write the interquartile mean of scores, of each run one for each environment; new scores are resampled once."""
    found = aggregates({"": np.array(values)})["IQM"][""]
    return _with_ends(found.value, found.low, found.high)


def _with_ends(value: Any, low: Any, high: Any) -> str:
    ends = f"{number(float(low))} to {number(float(high))}" if np.isfinite(low) else "unknown"
    return f"{number(float(value))} ({ends})"


def _counted(n_runs: int) -> str:
    return "1 run" if n_runs == 1 else f"{n_runs} runs"


def _table(title: str, headers: list[str], rows: list[list[str]], folded: bool = False) -> Json:
    return {"title": title, "headers": headers, "rows": rows, "folded": folded}


def _side_by_side(title: str, columns: Mapping[str, Mapping[str, str]], folded: bool = False) -> Json:
    """Return a table of named values, a column for each of `columns`."""
    names = dict.fromkeys(name for values in columns.values() for name in values)
    rows = [[name, *(values.get(name, "-") for values in columns.values())] for name in names]
    return _table(title, ["", *columns], rows, folded)


def _only(values: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name in names}
