"""``polyak plot``: learning curves as an image, from the episodes of training or from the evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import note
from polyak.zoo.plots.averages import mean_of_runs
from polyak.zoo.plots.curves import EVALUATION_KEYS, Curve, evaluation_curve, time_unit, training_curve
from polyak.zoo.plots.drawing import draw_curves
from polyak.zoo.plots.evaluations import evaluation_keys
from polyak.zoo.plots.image_files import image_file, write_image
from polyak.zoo.plots.look import Look, look_of
from polyak.zoo.plots.selection import Selection, runs_at, say_left_out
from polyak.zoo.plots.tables import Table, estimate, markdown
from polyak.zoo.registry import env_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

X_LABELS = {"steps": "Environment steps", "episodes": "Episodes", "time": "{unit} of wall time"}
Y_LABELS = {"reward": "Return", "success": "Success rate", "length": "Episode length (steps)"}
_SOURCES = ("train", "eval")


@dataclass
class PlotOptions:
    """Plot learning curves of runs under logs/<algo>/<env>_<n>/ to an image: the mean of each algorithm's runs.

    The band is the standard error over runs. With --source eval, a table of the last evaluations is printed.
    """

    algos: Sequence[str] = option([], "--algos", "--algo", "-a", help="Algorithms; all that have runs by default.")
    envs: Sequence[str] = option(
        [], "--env", "-e", help="Environments, one panel each; without any, says what runs there are."
    )
    folders: Sequence[str] = option(
        ["logs"], "--log-folder", "--exp-folders", "--exp-folder", "-f", help="Log folders to compare."
    )
    labels: Sequence[str] = option([], "--labels", "-l", help="Names of the log folders in the legend.")
    source: str = option(
        "",
        "--source",
        "-s",
        help="train: episodes of training. eval: evaluations, and a table of the last ones. Without it, episodes of "
        "training where there are any, evaluations elsewhere.",
    )
    each_run: bool = option(False, "--each-run", help="Draw each run as a thin line, in place of the band of the mean.")
    x_axis: str = option("steps", "--x-axis", "-x", help="steps, episodes or time (eval: steps only).")
    y_axis: str = option("reward", "--y-axis", "-y", help="reward, success or length.")
    window: int = option(100, "--episode-window", "-w", help="Episodes in the moving mean of training curves.")
    max_timesteps: int = option(-1, "--max-timesteps", "-max", help="Leave out what came after this step.")
    figsize: Sequence[float] = option([], "--figsize", help="Width and height of one panel in inches (6.4 4.0).")
    output: str = option("learning_curve.png", "--output", "-o", help="Image to write: .png, .svg or .pdf.")


def plot(options: PlotOptions) -> Path:
    """Draw what `options` ask for, write it to ``options.output`` and return that path.

    Raises ZooError when a choice is unknown or no run has the wanted data.
    """
    look = look_of(options.figsize)
    check_axes(options.x_axis, options.y_axis, options.window)
    if options.source and options.source not in _SOURCES:
        close = did_you_mean(options.source, _SOURCES)
        raise ZooError(f"--source must be one of {', '.join(_SOURCES)}, got {options.source!r}.{close}")
    if options.source == "eval" and options.x_axis != "steps":
        raise ZooError(
            f"--source eval knows only --x-axis steps (evaluations are taken at steps), got {options.x_axis!r}."
        )
    output = image_file("--output", options.output)
    panels = read_panels(options)
    with look.applied():
        path = write_image(_draw(panels, options, look), output)
    if options.source == "eval":
        print(markdown(last_evaluations(panels)))
    print(f"Wrote {path}")
    return path


def check_axes(x_axis: str, y_axis: str, window: int) -> None:
    """Raise ZooError unless the axes are known and the window holds an episode."""
    for flag, value, allowed in (("--x-axis", x_axis, X_LABELS), ("--y-axis", y_axis, Y_LABELS)):
        if value not in allowed:
            raise ZooError(f"{flag} must be one of {', '.join(allowed)}, got {value!r}.{did_you_mean(value, allowed)}")
    if window < 1:
        raise ZooError(f"--episode-window must be at least 1, got {window}.")


def read_panels(options: PlotOptions, apart: bool = False) -> dict[str, list[Curve]]:
    """Read the curves of each environment that has any, and name on stderr what is missing; ZooError if all is.

    Args:
        options: which runs, and what of them.
        apart: a curve for each run instead of one for each algorithm and folder; episodes of training only.
    """
    selection = Selection(options.folders, options.algos, options.labels)
    if not options.envs:
        raise ZooError(f"Which environment? Give --env.{selection.listing()}")
    panels = {env_name(env): curves for env in options.envs if (curves := _curves(options, selection, env, apart))}
    if not panels:
        raise _nothing_to_plot(options, selection)
    return panels


def _curves(options: PlotOptions, selection: Selection, text: str, apart: bool) -> list[Curve]:
    """Read the curves of one environment from every folder and algorithm; say which have none."""
    env = selection.environment(text)
    data = f"{options.source} data" if options.source else "data"
    curves: list[Curve] = []
    for place in selection.places():
        name = selection.name_of(place)
        runs = runs_at(place, env)
        found = _runs_of_training(options, runs, name) if apart else _mean_curve(options, runs, name)
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
    """Return the error of runs that are not there, or have other data than was asked for."""
    runs = [
        run
        for env in map(selection.environment, options.envs)
        for place in selection.places()
        for run in runs_at(place, env).values()
    ]
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


def _draw(panels: dict[str, list[Curve]], options: PlotOptions, look: Look) -> Figure:
    steps = Selection(options.folders, options.algos, options.labels).steps_of(options.envs)
    return draw_panels(panels, options.x_axis, options.y_axis, look, options.each_run, steps)


def draw_panels(
    panels: dict[str, list[Curve]],
    x_axis: str,
    y_axis: str,
    look: Look,
    each_run: bool = False,
    steps: str = X_LABELS["steps"],
) -> Figure:
    """Draw curves against `steps`, episodes, or time in the unit that suits the longest."""
    unit, seconds = time_unit([curve for curves in panels.values() for curve in curves])
    x_unit = seconds if x_axis == "time" else 1.0
    x_label = steps if x_axis == "steps" else X_LABELS[x_axis].format(unit=unit)
    return draw_curves(panels, x_label, Y_LABELS[y_axis], look, x_unit, each_run)


def last_evaluations(panels: dict[str, list[Curve]]) -> Table:
    """Return a table of the last evaluation of each curve: mean over runs +/- standard error."""
    labels = list(dict.fromkeys(curve.label for curves in panels.values() for curve in curves))
    rows = []
    for env_id, curves in panels.items():
        cells = {curve.label: _last(curve) for curve in curves}
        rows.append([env_id, *(cells.get(label, "-") for label in labels)])
    return Table(["Environment", *labels], rows)


def _last(curve: Curve) -> str:
    digits = 2 if abs(curve.y[-1]) <= 1 else 1
    return estimate(curve.y[-1], None if curve.error is None else curve.error[-1], digits)
