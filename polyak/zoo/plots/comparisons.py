"""``polyak plot --kind file``: final scores, boxes, and statistics that compare methods over environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.output import note
from polyak.zoo.plots import statistics
from polyak.zoo.plots.curves import Curve
from polyak.zoo.plots.drawing import add_legend, draw_curves, new_figure, new_panels, step_axis, text_width
from polyak.zoo.plots.look import COLOURS, Drawn, Look, style_of
from polyak.zoo.plots.options import PlotOptions
from polyak.zoo.plots.results import (
    TABLE,
    Results,
    merge,
    methods_of,
    names_for_readers,
    read_results,
    rename,
    results_table,
    select,
)
from polyak.zoo.plots.statistics import Estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCALED = "Scaled score (0: worst run, 1: best run)"
_ROW = 0.42
"""Height of one row of intervals in inches, at 10 points."""


_THRESHOLDS = np.linspace(0.0, 1.0, 101)


def draw_file(options: PlotOptions, name: str) -> Drawn:
    """Read files of --kind table, here or by RL Baselines3 Zoo, and print their table.

    The images are NAME for the final scores, NAME_curves, NAME_boxplot, NAME_aggregates, NAME_profiles, NAME_efficiency
    and NAME_improvement. Scores that are compared over environments are scaled: 0 is the lowest last evaluation of any
    run there, 1 the highest.

    Raises ZooError when a file cannot be read, or a name is not in it.
    """
    if not options.input:
        raise ZooError("--kind file needs --input, a file that polyak plot --kind table ... -o NAME wrote.")
    if not 0 < options.ci_size < 1:
        raise ZooError(f"--ci-size is the level of the intervals, between 0 and 1; got {options.ci_size:g}.")
    results = read_results("--input", Path(options.input))
    for path in options.merge:
        results = merge(results, read_results("--merge", Path(path)), Path(path).stem)
    results = select(results, options.keep_envs, options.skip_envs, options.keep_keys, options.skip_keys)
    results = rename(results, options.labels) if options.labels else results
    heads = {method: (method, "") for method in methods_of(results)}
    split = {method: method.partition("-") for method in heads}
    if all(separator for _, separator, _ in split.values()):  # TQC-logs/, as tables name them
        heads = {method: (algo, label) for method, (algo, _, label) in split.items()}
    table = results_table(results, heads)
    print(f"# {TABLE}\n{table.markdown()}")
    if options.latex:
        print(table.latex())
    return [], lambda look: dict(_images(results, options, look))


def _images(results: Results, options: PlotOptions, look: Look) -> Iterator[tuple[str, Figure]]:
    """Yield the figures, each with the part of its file's name that distinguishes it."""
    names = {} if options.labels else names_for_readers(methods_of(results))
    results = {env: {names.get(key, key): found for key, found in known.items()} for env, known in results.items()}
    panels = {env: [replace(found, label=name) for name, found in known.items()] for env, known in results.items()}
    steps, unit = step_axis(options.no_million, panels)
    yield "", draw_final_scores(results, "Final score", options.ci_size, look)
    if not options.skip_timesteps:
        yield "curves", draw_curves(panels, steps, "Score", look, unit)
    if options.boxplot:
        yield "boxplot", draw_boxes(results, "Final score", look)
    if not (options.rliable or options.versus or options.iqm):
        return
    compared = statistics.comparable(results)
    scores = statistics.last_scores(compared)
    if options.rliable:
        yield "aggregates", draw_aggregates(statistics.aggregates(scores, options.ci_size), options.ci_size, look)
        shares = statistics.performance_profiles(scores, _THRESHOLDS, options.ci_size)
        yield (
            "profiles",
            draw_lines(_THRESHOLDS, shares, f"Threshold t\n{SCALED}", "Share of runs that score above t", look),
        )
    efficiency = statistics.sample_efficiency(compared, options.ci_size) if options.rliable or options.iqm else None
    if efficiency is not None:
        grid, curves = efficiency
        yield "efficiency", draw_lines(grid / unit, curves, steps, "IQM of the scaled score", look)
    if options.versus and len(scores) > 1:
        yield "improvement", draw_improvement(statistics.improvement(scores, options.ci_size), options.ci_size, look)
    elif options.versus:
        note("--versus: there is one method only, nothing to compare it with.")


def draw_final_scores(results: Results, value_name: str, confidence: float, look: Look) -> Figure:
    """Draw for each environment the last evaluation of every run, their mean and its interval."""
    name = f"{value_name}\n(mean, {_percent(confidence)} interval)"
    return _draw_by_method(results, name, look, partial(_dots, confidence=confidence))


def draw_boxes(results: Results, value_name: str, look: Look) -> Figure:
    """Draw for each environment the last evaluations of each method's runs as a box with whiskers, and the runs."""
    return _draw_by_method(results, value_name, look, _box)


def _draw_by_method(results: Results, value_name: str, look: Look, draw: Any) -> Figure:
    figure, all_axes = new_panels(list(results), look)
    methods = methods_of(results)
    for axes, known in zip(all_axes, results.values(), strict=True):
        present = [method for method in methods if method in known]
        for place, method in enumerate(present):
            draw(axes, place, known[method], COLOURS[methods.index(method) % len(COLOURS)])
        _name_places(axes, {name: known[name].n_runs for name in present}, look)
        axes.set_ylabel(value_name)
    return figure


def _name_places(axes: Axes, n_runs: Mapping[str, int], look: Look) -> None:
    """Write the name and the number of runs below each place, rotated where the names would overlap."""
    places = range(len(n_runs))
    runs = {name: "1 run" if count == 1 else f"{count} runs" for name, count in n_runs.items()}
    if text_width(runs, look) < 0.75 * look.panel[0] / len(runs):
        axes.set_xticks(places, [f"{name}\n{count}" for name, count in runs.items()])
    else:
        names = [f"{name}, {count}" for name, count in runs.items()]
        axes.set_xticks(places, names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.6, len(runs) - 0.4)
    axes.grid(axis="x", visible=False)


def _dots(axes: Axes, place: int, found: Curve, colour: str, confidence: float) -> None:
    from polyak.evaluation.intervals import mean_interval

    mean, interval = found.y[-1], mean_interval(found.last, confidence)
    beside = place - 0.2 if found.n_runs > 1 else place
    axes.plot(beside + _spread(found.n_runs), found.last, "o", color=colour, alpha=0.45, markersize=5)
    if found.n_runs > 1:
        error = [[mean - interval.low], [interval.high - mean]] if interval.is_known else None
        axes.errorbar([place], [mean], error, fmt="D", color=colour, capsize=6, markersize=6, linewidth=2)


def _box(axes: Axes, place: int, found: Curve, colour: str) -> None:
    line = {"color": colour}
    axes.boxplot(
        [found.last],
        positions=[place],
        widths=0.5,
        showfliers=False,  # every run is drawn beside
        patch_artist=True,
        boxprops={"facecolor": colour + "33", "edgecolor": colour},
        medianprops={"color": colour, "linewidth": 2},
        whiskerprops=line,
        capprops=line,
    )
    axes.plot(place + _spread(found.n_runs), found.last, "o", color=colour, alpha=0.5, markersize=4)


def _percent(confidence: float) -> str:
    return f"{100 * confidence:g}%"


def _spread(n_runs: int) -> np.ndarray:
    """Return horizontal offsets of dots that would otherwise overlap."""
    return np.linspace(-0.1, 0.1, n_runs) if n_runs > 1 else np.zeros(1)


def draw_aggregates(statistics: Mapping[str, Mapping[str, Estimates]], confidence: float, look: Look) -> Figure:
    """Draw the interval of each method, a panel for each statistic of scaled scores."""
    methods = list(next(iter(statistics.values())))
    scale = look.fontsize / 10
    figure = new_figure(1.5 * look.panel[0] + text_width(methods, look), (1.5 + _ROW * len(methods)) * scale, look)
    all_axes = figure.subplots(1, len(statistics), sharey=True)
    for axes, (name, found) in zip(all_axes, statistics.items(), strict=True):
        for row, method in enumerate(methods):
            _interval(axes, row, found[method], COLOURS[row % len(COLOURS)])
        axes.set_title(name)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=4)
        axes.use_sticky_edges = False  # which would set the bars against the frame
        axes.margins(x=0.08)
    all_axes[0].set_yticks(range(len(methods)), methods)
    all_axes[0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(
        f"{SCALED}\nBars: {_percent(confidence)} intervals; a smaller gap is better", fontsize=look.fontsize
    )
    return figure


def _interval(axes: Axes, row: int, found: Estimates, colour: str) -> None:
    axes.barh(row, found.high - found.low, left=found.low, height=0.6, color=colour, alpha=0.45, linewidth=0)
    axes.plot([found.value, found.value], [row - 0.3, row + 0.3], color=colour, linewidth=3)


def draw_lines(x: np.ndarray, lines: Mapping[str, Estimates], x_label: str, y_label: str, look: Look) -> Figure:
    """Draw one line with its band for each method."""
    figure, (axes,) = new_panels([""], look)
    for number, (method, found) in enumerate(lines.items()):
        style = style_of(number)
        axes.plot(x, found.value, label=method, marker="" if len(x) > 1 else "o", **style)
        axes.fill_between(x, found.low, found.high, color=style["color"], alpha=0.2, linewidth=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.margins(x=0.02)
    add_legend(figure, [axes], look)
    return figure


def draw_improvement(pairs: Mapping[tuple[str, str], Estimates], confidence: float, look: Look) -> Figure:
    """Draw for each pair of methods the probability that the first one's runs end with the higher score."""
    scale = look.fontsize / 10
    names = [f"{x} > {y}" for x, y in pairs]
    figure = new_figure(0.8 * look.panel[0] + text_width(names, look), (1.3 + _ROW * len(pairs)) * scale, look)
    axes = figure.add_subplot()
    for row, found in enumerate(pairs.values()):
        _interval(axes, row, found, COLOURS[0])
    axes.axvline(0.5, color="black", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"Probability that a run of the first ends higher\n(bars: {_percent(confidence)} intervals)")
    return figure
