"""``polyak plot``: learning curves as a picture, from the episodes of training or from the evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.envs.names import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import note, writable_file
from polyak.zoo.registry import env_name
from polyak.zoo.run_folder import file_name, run_name, run_numbers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

X_LABELS = {"steps": "Environment steps", "episodes": "Episodes", "time": "{unit} of wall time"}
Y_LABELS = {"reward": "Return", "success": "Success rate", "length": "Episode length"}
_EVAL_KEYS = {"reward": "results", "success": "successes", "length": "ep_lengths"}
_SOURCES = ("train", "eval")
#: The name of a unit of time, its seconds, and the seconds from which on it is the one to read.
_TIME_UNITS = (("Hours", 3600.0, 2 * 3600.0), ("Minutes", 60.0, 2 * 60.0), ("Seconds", 1.0, 0.0))


@dataclass
class PlotOptions:
    """Plot learning curves of runs under logs/<algo>/<env>_<n>/ to a picture; print a table of final evaluations."""

    algos: Sequence[str] = option([], "--algos", "--algo", "-a", help="Algorithms; all that have runs by default.")
    envs: Sequence[str] = option(
        [], "--env", "-e", help="Environments, one panel each; without any, says what runs there are."
    )
    folders: Sequence[str] = option(["logs"], "--exp-folders", "--exp-folder", "-f", help="Log folders to compare.")
    labels: Sequence[str] = option([], "--labels", "-l", help="Names of the log folders in the legend.")
    source: str = option(
        "train", "--source", "-s", help="train: episodes of training, a curve a run. eval: mean of runs with its error."
    )
    x_axis: str = option("steps", "--x-axis", "-x", help="steps, episodes or time (eval: steps only).")
    y_axis: str = option("reward", "--y-axis", "-y", help="reward, success or length.")
    window: int = option(100, "--episode-window", "-w", help="Episodes in the moving mean of training curves.")
    max_timesteps: int = option(-1, "--max-timesteps", "-max", help="Leave out what came after this step.")
    figsize: Sequence[float] = option([], "--figsize", help="Width and height of one panel in inches (6.4 4.0).")
    output: str = option("learning_curve.png", "--output", "-o", help="Picture to write: .png, .svg or .pdf.")


@dataclass
class Curve:
    """One line of a figure.

    Fields: ``x`` (steps, episodes or seconds) and ``y``, [n] each; ``label`` its name; ``error`` the half-width of its
    band; ``n_runs`` the runs behind it; ``remark`` what a reader must know of how they were joined.
    """

    x: np.ndarray
    y: np.ndarray
    label: str
    error: np.ndarray | None = None
    n_runs: int = 1
    remark: str = ""


def plot(options: PlotOptions) -> Path:
    """Draw what `options` ask for, write it to ``options.output`` and return that path.

    Raises ZooError when a choice is unknown or no run has the wanted data.
    """
    _check(options)
    output = writable_file("--output", options.output)
    panels = {env: curves for env in map(env_name, options.envs) if (curves := _curves(options, env))}
    if not panels:
        raise ZooError(
            f"Nothing to plot: no {options.source} data ({options.y_axis}) of {', '.join(options.envs)} under "
            f"{', '.join(options.folders)}.{_what_exists(options)}"
        )
    path = draw(panels, options, output)
    if options.source == "eval":
        print(results_table(panels))
    print(f"Wrote {path}")
    return path


def _check(options: PlotOptions) -> None:
    choices = {
        "--source": (options.source, _SOURCES),
        "--x-axis": (options.x_axis, X_LABELS),
        "--y-axis": (options.y_axis, Y_LABELS),
    }
    for flag, (value, allowed) in choices.items():
        if value not in allowed:
            raise ZooError(f"{flag} must be one of {', '.join(allowed)}, got {value!r}.{did_you_mean(value, allowed)}")
    if not options.envs:
        raise ZooError(f"Which environment? Give --env.{_listing(options)}")
    if options.window < 1:
        raise ZooError(f"--episode-window must be at least 1, got {options.window}.")
    if options.source == "eval" and options.x_axis != "steps":
        raise ZooError(
            f"--source eval knows only --x-axis steps (evaluations are taken at steps), got {options.x_axis!r}."
        )
    if options.labels and len(options.labels) != len(options.folders):
        raise ZooError(f"--labels: {len(options.labels)} names for {len(options.folders)} folders. Give one for each.")
    if options.figsize and (len(options.figsize) != 2 or min(options.figsize) <= 0):
        raise ZooError(f"--figsize takes a width and a height in inches, got {options.figsize}.")


def _curves(options: PlotOptions, env_id: str) -> list[Curve]:
    """Read the curves of one environment from every folder and algorithm; say which have none."""
    curves: list[Curve] = []
    labels = options.labels or options.folders
    for folder, label in zip(options.folders, labels, strict=True):
        for algo in options.algos or _algos_in(Path(folder)):
            runs = run_numbers(Path(folder) / algo.lower(), env_id)
            name = algo.upper() if len(options.folders) == 1 else f"{algo.upper()} {label}"
            found = _curves_of(options, runs, name)
            if not found and options.algos:
                close = did_you_mean(algo, set(_algos_in(Path(folder))) - {algo.lower()})
                note(f"left out: no {options.source} data of {algo} on {env_id} under {folder}.{close}")
            curves += found
    if not curves and len(options.envs) > 1:
        note(f"left out: no {options.source} data on {env_id}.")
    return curves


def _curves_of(options: PlotOptions, runs: dict[int, Path], name: str) -> list[Curve]:
    """Read the runs of one algorithm: a curve each of their training, or one of all their evaluations."""
    if options.source == "eval":
        curve = evaluation_curve(list(runs.values()), options.y_axis, options.max_timesteps, name)
        if curve is not None and curve.remark:
            note(f"{name}: {curve.remark}")
        return [] if curve is None else [curve]
    how = (options.x_axis, options.y_axis, options.window, options.max_timesteps)
    curves = [training_curve(run, *how, f"{name} {number}") for number, run in sorted(runs.items())]
    return [curve for curve in curves if curve is not None]


def _algos_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def training_curve(
    run: Path, x_axis: str, y_axis: str, window: int, max_timesteps: int = -1, label: str = ""
) -> Curve | None:
    """Read the monitor.csv files of `run` into a moving mean over `window` episodes; None if there is nothing.

    Short runs use as many episodes as there are, so that the first point is one episode and none is dropped.
    """
    from polyak.envs.wrappers.monitor import LoadMonitorResultsError, load_results

    try:
        table = load_results(str(run))
    except LoadMonitorResultsError:
        return None
    columns = {"reward": "r", "length": "l", "success": "is_success"}
    if columns[y_axis] not in table or not len(table):
        return None
    steps = np.cumsum(table["l"].to_numpy())
    xs = {"steps": steps, "episodes": np.arange(1, len(table) + 1), "time": table["t"].to_numpy()}
    keep = steps <= max_timesteps if max_timesteps > 0 else np.full(len(steps), True)
    if not keep.any():
        return None
    values = table[columns[y_axis]].to_numpy(dtype=float)[keep]
    return Curve(xs[x_axis][keep], moving_mean(values, window), label)


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of each value with up to ``window - 1`` values before it; same length as `values`."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=float)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def evaluation_curve(runs: list[Path], y_axis: str, max_timesteps: int = -1, label: str = "") -> Curve | None:
    """Read the evaluations.npz files of `runs`: mean over runs, with the standard error over them.

    Runs are joined by step. Where one was evaluated and another was not, the latter's value is interpolated between its
    neighbours; the curve covers the steps that every run reached, and its ``remark`` says so. With a single run the
    error is that of its episodes. None if no run was evaluated.

    Raises ZooError when the runs have no stretch of steps in common.
    """
    import pandas as pd

    loaded = {run.name: found for run in runs if (found := _evaluations(run / "evaluations.npz", y_axis)) is not None}
    if not loaded:
        return None
    means = pd.concat({name: values.mean(axis=1) for name, values in loaded.items()}, axis=1).sort_index()
    joined = means.interpolate("index", limit_area="inside").dropna()
    if joined.empty:
        raise ZooError(f"The evaluations of these runs have no steps in common: {_ranges(loaded)}. Plot them apart.")
    remark = ""
    if means.isna().any(axis=None):
        remark = (
            f"the runs were evaluated at different steps ({_ranges(loaded)}); values between two evaluations are "
            f"interpolated, and the curve goes from {joined.index[0]:,} to {joined.index[-1]:,}."
        )
    joined = joined[joined.index <= max_timesteps] if max_timesteps > 0 else joined
    if joined.empty:
        return None
    samples = joined if len(loaded) > 1 else next(iter(loaded.values())).loc[joined.index]
    error = samples.std(axis=1, ddof=1) / np.sqrt(samples.shape[1]) if samples.shape[1] > 1 else 0.0 * joined.iloc[:, 0]
    return Curve(joined.index.to_numpy(), joined.mean(axis=1).to_numpy(), label, error.to_numpy(), len(loaded), remark)


def _ranges(loaded: dict[str, pd.DataFrame]) -> str:
    return "; ".join(
        f"{name}: {len(table)} from {table.index[0]:,} to {table.index[-1]:,}" for name, table in loaded.items()
    )


def _evaluations(path: Path, y_axis: str) -> pd.DataFrame | None:
    """Return the values of one file, a row for each step and a column for each episode; None if it lacks them."""
    import pandas as pd

    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as data:
        if _EVAL_KEYS[y_axis] not in data:
            return None
        values = np.asarray(data[_EVAL_KEYS[y_axis]], dtype=float)
        steps = np.asarray(data["timesteps"])
    if not len(steps):
        return None
    table = pd.DataFrame(values.reshape(len(steps), -1), index=steps).sort_index(kind="stable")
    return table[~table.index.duplicated(keep="last")]


def draw(panels: dict[str, list[Curve]], options: PlotOptions, path: Path) -> Path:
    """Draw one panel an environment and write the figure to `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib: pip install 'polyak[zoo]'.") from error
    width, height = options.figsize or (6.4, 4.0)
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    unit, seconds = time_unit([curve for curves in panels.values() for curve in curves])
    scale = seconds if options.x_axis == "time" else 1.0
    for column, (env_id, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), column + 1)
        _draw_panel(axes, env_id, curves, scale)
        axes.set_xlabel(X_LABELS[options.x_axis].format(unit=unit))
        axes.set_ylabel(Y_LABELS[options.y_axis])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (ValueError, OSError) as error:
        raise ZooError(f"--output {str(path)!r}: {error}") from error
    return path


def time_unit(curves: list[Curve]) -> tuple[str, float]:
    """Return the unit in which the longest of `curves`, with ``x`` in seconds, is best read, and its seconds."""
    longest = max((float(curve.x[-1]) for curve in curves if len(curve.x)), default=0.0)
    return next((name, seconds) for name, seconds, least in _TIME_UNITS if longest >= least)


def _draw_panel(axes: Axes, env_id: str, curves: list[Curve], scale: float) -> None:
    for curve in curves:
        name = f"{curve.label} ({curve.n_runs} runs)" if curve.n_runs > 1 else curve.label
        x = curve.x / scale
        (line,) = axes.plot(x, curve.y, label=name, marker="" if len(curve.x) > 1 else "o")
        if curve.error is not None:
            band: dict[str, Any] = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0}
            axes.fill_between(x, curve.y - curve.error, curve.y + curve.error, **band)
    axes.set_title(env_id)
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(frameon=False)


def results_table(panels: dict[str, list[Curve]]) -> str:
    """Return a Markdown table of the last evaluation of each curve: mean +/- standard error."""
    labels = list(dict.fromkeys(curve.label for curves in panels.values() for curve in curves))
    lines = [f"| Environment | {' | '.join(labels)} |", "|---" * (len(labels) + 1) + "|"]
    for env_id, curves in panels.items():
        cells = {curve.label: _last(curve) for curve in curves}
        lines.append(f"| {env_id} | {' | '.join(cells.get(label, '-') for label in labels)} |")
    return "\n".join(lines)


def _last(curve: Curve) -> str:
    error = 0.0 if curve.error is None else float(curve.error[-1])
    return f"{curve.y[-1]:.1f} +/- {error:.1f}"


def _found(options: PlotOptions) -> dict[str, dict[str, int]]:
    """Count the runs under each folder of an algorithm, by environment."""
    found: dict[str, dict[str, int]] = {}
    for folder in map(Path, options.folders):
        for algo in options.algos or _algos_in(folder):
            names = [run_name(run) for run in sorted((folder / algo.lower()).glob("*_*")) if run.is_dir()]
            if counts := Counter(name for name in names if name is not None):
                found[str(folder / algo.lower())] = dict(counts)
    return found


def _listing(options: PlotOptions) -> str:
    """Say what could be plotted, a line for each algorithm."""
    found = _found(options)
    if not found:
        places = ", ".join(options.folders)
        return f" But there are no runs under {places}: train first, or point --exp-folder at your logs."
    runs = {place: ", ".join(f"{env} ({n})" for env, n in counts.items()) for place, counts in found.items()}
    return "".join(["\nRuns found:", *(f"\n  {place}: {envs}" for place, envs in runs.items())])


def _what_exists(options: PlotOptions) -> str:
    """Name the environments that do have runs."""
    found = {env for counts in _found(options).values() for env in counts}
    wanted = {file_name(env_name(env)) for env in options.envs}
    close = did_you_mean(file_name(env_name(options.envs[0])), found - wanted)
    return f"{close} Environments with runs: {', '.join(sorted(found)) or 'none'}."
