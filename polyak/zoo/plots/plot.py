"""``polyak plot``: learning curves, tables and comparisons of runs, as images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.zoo.errors import ZooError
from polyak.zoo.options import CommandOptions, default_of, option
from polyak.zoo.output import note, writable_file
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
from polyak.zoo.plots.look import Look, chosen_look
from polyak.zoo.plots.results import Table, estimate
from polyak.zoo.plots.selection import Selection, runs_at, say_left_out
from polyak.zoo.registry import env_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

X_LABELS = {"steps": "Environment steps", "episodes": "Episodes", "time": "{unit} of wall time"}
Y_LABELS = {"reward": "Return", "success": "Success rate", "length": "Episode length (steps)"}
_SOURCES = ("train", "eval")
KINDS = ("curves", "training", "table", "file")
_FILES = {"curves": "learning_curve", "training": "plot_train", "table": "all_plots", "file": "plot_from_file"}
"""The names of images that are given none."""
_RUNS = ("curves", "training", "table")


@dataclass
class PlotOptions(CommandOptions):
    """Plot runs under logs/<algo>/<env>_<n>/: learning curves, a table of evaluations, comparisons with intervals.

    --kind curves: the mean of each algorithm's runs and its standard error. training: a line for each run (RL Zoo's
    plot_train). table: evaluations as a table, an image and a file (all_plots). file: such files (plot_from_file).
    """

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": ("kind", "algos", "envs", "folders", "input", "output"),
        "What is drawn": ("source", "x_axis", "y_axis", "window", "max_timesteps", "each_run", "labels"),
        "Images": ("image_format", "figsize", "fontsize", "legend_loc", "no_million", "no_display"),
        "Tables of evaluations": ("key", "min_timesteps", "median", "print_n_trials"),
        "Comparisons": (
            *("merge", "skip_envs", "keep_envs", "skip_keys", "keep_keys", "skip_timesteps", "boxplot", "rliable"),
            *("versus", "iqm", "ci_size", "latex"),
        ),
    }
    ONLY: ClassVar[dict[tuple[str, ...], tuple[str, ...]]] = {
        _RUNS: ("algos", "envs", "folders", "max_timesteps"),
        ("curves", "table", "file"): ("labels",),
        ("curves",): ("source", "each_run"),
        ("curves", "training"): ("x_axis", "y_axis", "window"),
        ("table",): PANELS["Tables of evaluations"],
        ("file",): ("input", *PANELS["Comparisons"]),
        ("table", "file"): ("no_million",),
        ("training", "table", "file"): ("no_display",),
    }
    """Kinds -> the options that mean something to these alone."""

    kind: str = option("curves", "--kind", help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.", choices=KINDS)
    algos: Sequence[str] = option(
        [],
        "--algos",
        "--algo",
        "-a",
        help="Algorithms; all that have runs by default. her: those with a HerReplayBuffer in config.yml.",
    )
    envs: Sequence[str] = option(
        [],
        "--env",
        "-e",
        help="Environments, a panel each; Hopper: Hopper-v5 if it is the only. Without any, runs are listed.",
    )
    folders: Sequence[str] = option(
        ["logs"], "--log-folder", "--exp-folders", "--exp-folder", "-f", help="Log folders to compare."
    )
    labels: Sequence[str] = option(
        [], "--labels", "-l", help="Names of the log folders; with --kind file, of the methods that are kept."
    )
    max_timesteps: int = option(
        0,
        "--max-timesteps",
        "-max",
        help="Leave out what came after this step; by default nothing, in tables what came after 2,000,000.",
    )
    source: str = option(
        "",
        "--source",
        "-s",
        help="train: episodes of training. eval: evaluations, and a table of the last ones. Without it, episodes of "
        "training where there are any, evaluations elsewhere.",
        choices=_SOURCES,
    )
    x_axis: str = option("steps", "--x-axis", "-x", help="steps, episodes or time.", choices=tuple(X_LABELS))
    y_axis: str = option("reward", "--y-axis", "-y", help="reward, success or length.", choices=tuple(Y_LABELS))
    window: int = option(100, "--episode-window", "-w", help="Episodes in moving means of training.", at_least=1)
    input: str = option("", "--input", "-i", help="The .pkl file of --kind table, for --kind file.")
    output: str = option(
        "",
        "--output",
        "-o",
        help="NAME of what is written, with .png, .svg, .pdf or without. By default a window, but for curves.",
    )
    each_run: bool = option(False, "--each-run", help="Draw each run as a thin line, in place of the band of the mean.")
    image_format: str = option("", "--format", help="png, svg or pdf; by default png, or svg for --kind file.")
    figsize: Sequence[float] = option([], "--figsize", help="Width and height of one panel in inches (6.4 4.0).")
    fontsize: float = option(-1.0, "--fontsize", help="Size of the type in points; 14, but 10 for curves and tables.")
    legend_loc: str = option("", "--legend-loc", "-loc", help="Where legends go (best, 'upper left', ...).")
    no_million: bool = option(False, "--no-million", help="Count steps, not millions of them.")
    no_display: bool = option(False, "--no-display", help="Open no window; write the image instead.")
    key: str = option("results", "--key", "-k", help="What to read from evaluations.npz: results, successes, ...")
    min_timesteps: int = option(-1, "--min-timesteps", "-min", help="Leave out runs that ended before this step.")
    median: bool = option(False, "--median", "-median", help="Median of the runs in the table, instead of the mean.")
    print_n_trials: bool = option(False, "--print-n-trials", "-print", help="Print how many runs there are of each.")
    skip_envs: Sequence[str] = option([], "--skip-envs", "-skip", help="Environments to leave out.")
    keep_envs: Sequence[str] = option([], "--keep-envs", help="Environments to keep; all by default.")
    skip_keys: Sequence[str] = option([], "--skip-keys", help="Methods to leave out, such as SAC-logs/.")
    keep_keys: Sequence[str] = option([], "--keep-keys", help="Methods to keep; all by default.")
    skip_timesteps: bool = option(False, "--skip-timesteps", help="Draw no learning curves.")
    boxplot: bool = option(False, "--boxplot", "-b", help="Draw boxes of the final scores.")
    rliable: bool = option(
        False,
        "--rliable",
        "-r",
        help="Compare over environments: median, IQM, mean, optimality gap, performance profiles, sample efficiency.",
    )
    versus: bool = option(False, "--versus", "-vs", help="Draw the probability of improvement of each pair of methods.")
    iqm: bool = option(False, "--iqm", "-iqm", help="Draw the sample efficiency (IQM over steps); -r does so too.")
    ci_size: float = option(0.95, "--ci-size", "-ci", help="Level of the intervals.")
    latex: bool = option(
        False, "--latex", "-latex", help="Print the table as LaTeX too; serif type that goes with it in the images."
    )
    merge: Sequence[str] = option([], "--merge", help="More files of --kind table to put beside the first.")

    def check(self) -> None:
        """Raise ZooError for an option that means nothing to the kind."""
        kinds = {name: kinds for kinds, names in self.ONLY.items() for name in names}
        for item in fields(self):
            of = kinds.get(item.name, KINDS)
            if self.kind not in of and getattr(self, item.name) != default_of(item):
                flag = item.metadata["flags"][0]
                raise ZooError(f"{flag} means nothing to --kind {self.kind}, only to {' and '.join(of)}.")
        if self.kind in _RUNS and not self.envs:
            selection = Selection(self.folders, self.algos, self.labels)
            raise ZooError(f"Which environment? Give --env.{selection.listing()}")


def plot(options: PlotOptions) -> list[Path]:
    """Draw what `options` ask for, print its table if it has one, and return the files that were written.

    What has no runs is named on stderr and left out. Raises ZooError, before anything is written, when a choice is
    unknown, or no run has the wanted data.
    """
    options.check()
    if options.kind == "table":
        from polyak.zoo.plots.tables import draw_table as draw
    elif options.kind == "file":
        from polyak.zoo.plots.comparisons import draw_file as draw
    else:
        draw = draw_runs
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
        writable_file("--output", options.output)  # which says what is wrong with it
    if options.kind in ("curves", "training") and suffix and suffix[1:].lower() not in FORMATS:
        raise ZooError(f"--output {options.output!r}: images end in {', '.join('.' + name for name in FORMATS)}.")
    name = options.output.removesuffix(".pkl") if options.kind == "table" else options.output
    return name_and_format(
        name or _FILES[options.kind], options.image_format, "svg" if options.kind == "file" else "png"
    )


Drawn = tuple[list[Path], Callable[[Look], Mapping[str, "Figure"]]]
"""Files that were written already, and what draws the figures, by what distinguishes their files."""


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
    """Read the curves of each environment that has any, and name on stderr what is missing; ZooError if all is.

    There is a curve for each algorithm and folder, or with --kind training for each run.
    """
    selection = Selection(options.folders, options.algos, options.labels)
    panels = {env_name(env): curves for env in options.envs if (curves := _curves(options, selection, env))}
    if not panels:
        raise _nothing_to_plot(options, selection)
    return panels


def _curves(options: PlotOptions, selection: Selection, text: str) -> list[Curve]:
    """Read the curves of one environment from every folder and algorithm; say which have none."""
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
    """Return the error of runs that are not there, or have other data than was asked for."""
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
