"""``polyak plot``: learning curves, tables and comparisons of runs, as images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.zoo.errors import ZooError
from polyak.zoo.output import note, writable_file
from polyak.zoo.plots.comparisons import draw_file
from polyak.zoo.plots.curves import (
    EVALUATION_KEYS,
    Curve,
    evaluation_curve,
    evaluation_keys,
    mean_of_runs,
    time_unit,
    training_curve,
)
from polyak.zoo.plots.drawing import draw_curves
from polyak.zoo.plots.images import FORMATS, can_show, name_and_format, put_out
from polyak.zoo.plots.look import Drawn, Look, chosen_look
from polyak.zoo.plots.options import X_LABELS, Y_LABELS, PlotOptions
from polyak.zoo.plots.results import Table, estimate
from polyak.zoo.plots.selection import Selection, runs_at, say_left_out
from polyak.zoo.plots.tables import draw_table
from polyak.zoo.registry import env_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FILES = {"curves": "learning_curve", "training": "plot_train", "table": "all_plots", "file": "plot_from_file"}
"""The names of images that are given none."""


def plot(options: PlotOptions) -> list[Path]:
    """Draw the plot that `options` describe, print its table if it has one, and return the files that were written.

    Environments and algorithms without runs are named on stderr and left out. Raises ZooError, before anything is
    written, when a choice is unknown, or no run has the wanted data.
    """
    options.check()
    draw = {"table": draw_table, "file": draw_file}.get(options.kind, draw_runs)
    files = _files_of(options)
    window = options.kind != "curves" and not options.no_display and can_show()
    window = window and (options.kind == "table" or not options.output)
    look = chosen_look(options, window)
    begin, figures = draw(options, files[0])
    with look.applied():
        drawn = figures(look)
        return [*begin, *put_out(drawn, files if options.output or not window else None, window)]


def _files_of(options: PlotOptions) -> tuple[str, str]:
    """Return how the names of images begin, and their format; ZooError if they cannot be written there."""
    suffix = Path(options.output).suffix
    if options.kind in ("curves", "training") and options.output and Path(options.output).is_dir():
        writable_file("--output", options.output)  # raises the error that explains the path
    if options.kind in ("curves", "training") and suffix and suffix[1:].lower() not in FORMATS:
        raise ZooError(f"--output {options.output!r}: images end in {', '.join('.' + name for name in FORMATS)}.")
    name = options.output.removesuffix(".pkl") if options.kind == "table" else options.output
    return name_and_format(
        name or _FILES[options.kind], options.image_format, "svg" if options.kind == "file" else "png"
    )


def draw_runs(options: PlotOptions, name: str) -> Drawn:
    """Read the curves of --kind curves or training. Raises ZooError when a choice is unknown, or there are none."""
    if options.source == "eval" and options.x_axis != "steps":
        raise ZooError(
            f"--source eval knows only --x-axis steps (evaluations are taken at steps), got {options.x_axis!r}."
        )
    panels = read_panels(options)
    if options.source == "eval":
        print(last_evaluations(panels).markdown())
    steps = Selection(options.folders, options.algos, options.labels).steps_of(options.envs)
    return [], lambda look: {"": draw_panels(panels, options.x_axis, options.y_axis, look, options.each_run, steps)}


def read_panels(options: PlotOptions) -> dict[str, list[Curve]]:
    """Read the curves of each environment that has any; missing ones are named on stderr. ZooError if all are
    missing."""
    selection = Selection(options.folders, options.algos, options.labels)
    panels = {env_name(env): curves for env in options.envs if (curves := _curves(options, selection, env))}
    if not panels:
        raise _nothing_to_plot(options, selection)
    return panels


def _curves(options: PlotOptions, selection: Selection, text: str) -> list[Curve]:
    """Read the curves of one environment from every folder and algorithm; name those without any on stderr."""
    env = selection.environment(text)
    data = f"{options.source} data" if options.source else "data"
    curves: list[Curve] = []
    for place in selection.places():
        read = _runs_of_training if options.kind == "training" else _mean_curve
        found = read(options, runs_at(place, env), selection.name_of(place))
        if not found and options.algos:
            say_left_out(place, env, data)
        curves += found
    if not curves and len(options.envs) > 1:
        note(f"left out: no {data} on {env_name(text)}.")
    return curves


def _runs_of_training(options: PlotOptions, runs: Mapping[str, Path], name: str) -> list[Curve]:
    how = (options.x_axis, options.y_axis, options.window, options.max_timesteps)
    curves = [training_curve(run, *how, f"{name} {number}") for number, run in runs.items()]
    return [curve for curve in curves if curve is not None]


def _mean_curve(options: PlotOptions, runs: Mapping[str, Path], name: str) -> list[Curve]:
    """Read the runs at one place as a curve: of their training, or of their evaluations; none if they have neither."""
    curve = None
    if options.source != "eval":
        training = {curve.label: curve for curve in _runs_of_training(options, runs, name)}
        curve = mean_of_runs(training, name) if training else None
    if curve is None and options.source != "train" and options.x_axis == "steps":
        curve = evaluation_curve(list(runs.values()), options.y_axis, options.max_timesteps, name)
        if curve is not None and not options.source:
            note(f"{name}: there are no episodes of training; these are its evaluations (--source eval).")
    if curve is None:
        return []
    if curve.remark:
        note(f"{name}: {curve.remark}")
    return [curve]


def _nothing_to_plot(options: PlotOptions, selection: Selection) -> ZooError:
    """Return the error about runs that are missing, or have other data."""
    runs = list(selection.runs(options.envs))
    evaluated = frozenset[str]().union(*(evaluation_keys(run) for run in runs))
    kinds = {
        "episodes of training": any(get_monitor_files(run) for run in runs),
        "evaluations": bool(evaluated & set(EVALUATION_KEYS.values())),
    }
    there = [kind for kind, is_there in kinds.items() if is_there]
    source = f" {options.source}" if options.source else ""
    what = f"no{source} data ({options.y_axis}) of {', '.join(options.envs)} under {', '.join(options.folders)}."
    if not there:
        return ZooError(f"Nothing to plot: {what}{selection.environments_with_runs(options.envs)}")
    way_out = "polyak plot --source " + ("train" if kinds["episodes of training"] else "eval --x-axis steps")
    return ZooError(f"Nothing to plot: {what} The runs have {' and '.join(there)}: try {way_out}, or another --y-axis.")


def draw_panels(
    panels: dict[str, list[Curve]],
    x_axis: str,
    y_axis: str,
    look: Look,
    each_run: bool = False,
    steps: str = X_LABELS["steps"],
) -> Figure:
    """Draw curves against `steps`, episodes, or time in the unit that suits the longest."""
    unit, seconds = time_unit(curve for curves in panels.values() for curve in curves)
    x_unit = seconds if x_axis == "time" else 1.0
    x_label = steps if x_axis == "steps" else X_LABELS[x_axis].format(unit=unit)
    return draw_curves(panels, x_label, Y_LABELS[y_axis], look, x_unit, each_run)


def last_evaluations(panels: dict[str, list[Curve]]) -> Table:
    """Return a table of the last evaluation of each curve: mean over runs +/- standard error."""
    labels = list(dict.fromkeys(curve.label for curves in panels.values() for curve in curves))
    rows = []
    for env_id, curves in panels.items():
        cells = {curve.label: estimate(curve, 2 if abs(curve.y[-1]) <= 1 else 1) for curve in curves}
        rows.append([env_id, *(cells.get(label, "-") for label in labels)])
    return Table(["Environment", *labels], rows)
