"""``polyak plot``: learning curves as a picture, from the episodes of training or from the evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.zoo.errors import ZooError, did_you_mean
from polyak.zoo.options import option
from polyak.zoo.run_folder import file_name, run_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_LABELS = {"steps": "Environment steps", "episodes": "Episodes", "time": "Hours of wall time"}
Y_LABELS = {"reward": "Return", "success": "Success rate", "length": "Episode length"}
_EVAL_KEYS = {"reward": "results", "success": "successes", "length": "ep_lengths"}
_SOURCES = ("train", "eval")


@dataclass
class PlotOptions:
    """Plot learning curves of runs under logs/<algo>/<env>_<n>/ to a picture; print a table of final evaluations."""

    algos: Sequence[str] = option([], "--algos", "--algo", "-a", help="Algorithms; all that have runs by default.")
    envs: Sequence[str] = option([], "--env", "-e", help="Environment ids, one panel each.")
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
    """One line of a figure: points, its name, half-width of its band (or None) and the number of runs behind it."""

    x: np.ndarray
    y: np.ndarray
    label: str
    error: np.ndarray | None = None
    n_runs: int = 1


def plot(options: PlotOptions) -> Path:
    """Draw what `options` ask for, write it to ``options.output`` and return that path.

    Raises ZooError when a choice is unknown or no run has the wanted data.
    """
    _check(options)
    panels = {env: _curves(options, env) for env in options.envs}
    if not any(panels.values()):
        raise ZooError(
            f"Nothing to plot: no {options.source} data ({options.y_axis}) of {', '.join(options.envs)} under "
            f"{', '.join(options.folders)}.{_what_exists(options)}"
        )
    path = draw(panels, options, Path(options.output))
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
        raise ZooError("Which environment? Give --env, e.g. --env CartPole-v1.")
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
    """Read the curves of one environment from every folder and algorithm."""
    curves: list[Curve] = []
    labels = options.labels or options.folders
    for folder, label in zip(options.folders, labels, strict=True):
        for algo in options.algos or _algos_in(Path(folder)):
            runs = run_numbers(Path(folder) / algo.lower(), env_id)
            name = algo.upper() if len(options.folders) == 1 else f"{algo.upper()} {label}"
            if options.source == "eval":
                curve = evaluation_curve(list(runs.values()), options.y_axis, options.max_timesteps, name)
                curves.extend([curve] if curve is not None else [])
                continue
            for number, run in sorted(runs.items()):
                found = training_curve(
                    run, options.x_axis, options.y_axis, options.window, options.max_timesteps, f"{name} {number}"
                )
                curves.extend([found] if found is not None else [])
    return curves


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
    xs = {"steps": steps, "episodes": np.arange(1, len(table) + 1), "time": table["t"].to_numpy() / 3600.0}
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

    The curve ends with the shortest run, so that no run is dropped. With a single run the error is that of its
    episodes. None if no run was evaluated.
    """
    loaded = [found for run in runs if (found := _evaluations(run / "evaluations.npz", y_axis)) is not None]
    if not loaded:
        return None
    length = min(len(steps) for steps, _ in loaded)
    steps = loaded[0][0][:length]
    keep = steps <= max_timesteps if max_timesteps > 0 else np.full(length, True)
    if not keep.any():
        return None
    means = np.stack([values[:length].mean(axis=1) for _, values in loaded])
    samples = means.T if len(loaded) > 1 else loaded[0][1][:length]
    error = samples.std(axis=1, ddof=1) / np.sqrt(samples.shape[1]) if samples.shape[1] > 1 else np.zeros(length)
    return Curve(steps[keep], means.mean(axis=0)[keep], label, error[keep], len(loaded))


def _evaluations(path: Path, y_axis: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the steps [n] and the values [n, episodes] of one file, or None if it lacks them."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as data:
        if _EVAL_KEYS[y_axis] not in data:
            return None
        values = np.asarray(data[_EVAL_KEYS[y_axis]], dtype=float)
        steps = np.asarray(data["timesteps"])
    return (steps, values.reshape(len(steps), -1)) if len(steps) else None


def draw(panels: dict[str, list[Curve]], options: PlotOptions, path: Path) -> Path:
    """Draw one panel an environment and write the figure to `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib: pip install 'polyak[zoo]'.") from error
    width, height = options.figsize or (6.4, 4.0)
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    for column, (env_id, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), column + 1)
        _draw_panel(axes, env_id, curves)
        axes.set_xlabel(X_LABELS[options.x_axis])
        axes.set_ylabel(Y_LABELS[options.y_axis])
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise ZooError(f"--output {str(path)!r}: {error}") from error
    return path


def _draw_panel(axes: Axes, env_id: str, curves: list[Curve]) -> None:
    for curve in curves:
        name = f"{curve.label} ({curve.n_runs} runs)" if curve.n_runs > 1 else curve.label
        (line,) = axes.plot(curve.x, curve.y, label=name, marker="" if len(curve.x) > 1 else "o")
        if curve.error is not None:
            band: dict[str, Any] = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0}
            axes.fill_between(curve.x, curve.y - curve.error, curve.y + curve.error, **band)
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


def _what_exists(options: PlotOptions) -> str:
    """Name the environments that do have runs."""
    found: set[str] = set()
    for folder in map(Path, options.folders):
        for algo in options.algos or _algos_in(folder):
            runs = (folder / algo.lower()).glob("*_*")
            found.update(run.name.rsplit("_", 1)[0] for run in runs if run.is_dir())
    close = did_you_mean(file_name(options.envs[0]), found - {file_name(env) for env in options.envs})
    return f"{close} Environments with runs: {', '.join(sorted(found)) or 'none'}."
