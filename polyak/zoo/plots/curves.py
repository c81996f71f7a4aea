"""Lines of a figure: a moving mean of training's episodes, or the mean of several runs' evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.zoo.errors import ZooError
from polyak.zoo.links import check_file
from polyak.zoo.output import note
from polyak.zoo.plots.evaluations import join_whole_runs, read_evaluations, standard_error, until
from polyak.zoo.run_folder import FINISHED, RunFolder
from polyak.zoo.whole_runs import Reach

if TYPE_CHECKING:
    import pandas as pd

EVALUATION_KEYS = {"reward": "results", "success": "successes", "length": "ep_lengths"}
"""What evaluations.npz calls each quantity."""
#: The name of a unit of time, its seconds, and the seconds from which on it is the one to read.
_TIME_UNITS = (("Hours", 3600.0, 2 * 3600.0), ("Minutes", 60.0, 2 * 60.0), ("Seconds", 1.0, 0.0))


_NOWHERE = Reach(FINISHED, 0, 0)


@dataclass
class Curve:
    """One line of a figure.

    Fields: ``x`` (steps, episodes or seconds) and ``y``, [n] each; ``label`` its name; ``error`` the half-width of its
    band, None without one; ``n_runs`` the runs behind it; ``remark`` what a reader must know of how they were joined;
    ``runs`` the curve of each run, those left out of the mean too; ``reach`` how far a single run went.
    """

    x: np.ndarray
    y: np.ndarray
    label: str
    error: np.ndarray | None = None
    n_runs: int = 1
    remark: str = ""
    runs: tuple[Curve, ...] = ()
    reach: Reach = _NOWHERE


def training_curve(
    run: Path, x_axis: str, y_axis: str, window: int, max_timesteps: int = -1, label: str = ""
) -> Curve | None:
    """Read the monitor.csv files of `run` into a moving mean over `window` episodes; None if there is nothing.

    Short runs use as many episodes as there are, so that the first point is one episode and none is dropped.
    """
    table = _episodes(run)
    name = {"reward": "r", "length": "l", "success": "is_success"}[y_axis]
    if table is None or name not in table or not len(table):
        return None
    if table[name].dtype.kind not in "biuf":
        note(f"left out: the column {name!r} in the monitor files of {run} holds other things than numbers.")
        return None
    steps = np.cumsum(table["l"].to_numpy())
    xs = {"steps": steps, "episodes": np.arange(1, len(table) + 1), "time": table["t"].to_numpy()}
    keep = steps <= max_timesteps if max_timesteps > 0 else np.full(len(steps), True)
    if not keep.any():
        return None
    values = table[name].to_numpy(dtype=float)[keep]
    last, open_steps = int(steps[keep][-1]), int(table["l"].max()) * len(get_monitor_files(run))
    reach = Reach(RunFolder.at(run).state, last, last + open_steps)
    return Curve(xs[x_axis][keep], moving_mean(values, window), label, reach=reach)


def _episodes(run: Path) -> pd.DataFrame | None:
    """What the monitor files of `run` hold; None, and a line on stderr, if they cannot be read."""
    from polyak.envs.wrappers.monitor import LoadMonitorResultsError, load_results

    files = get_monitor_files(run)
    if not files:
        return None
    try:
        for file in files:
            check_file(Path(file), run)
        return load_results(str(run))
    except (LoadMonitorResultsError, ZooError, OSError) as error:
        note(f"left out: {error}")
        return None


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of each value with up to ``window - 1`` values before it; same length as `values`."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=float)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def evaluation_curve(runs: list[Path], y_axis: str, max_timesteps: int = -1, label: str = "") -> Curve | None:
    """Read the evaluations.npz files of `runs`: mean over runs, with the standard error over them.

    Runs are joined by step, as in `all-plots`: see `polyak.zoo.plots.evaluations.join_whole_runs`; the ``remark`` says
    what was left out or interpolated. A single run has no error. None if no run was evaluated.

    Raises ZooError when the runs have no stretch of steps in common.
    """
    key = EVALUATION_KEYS[y_axis]
    distinct = len({run.name for run in runs}) == len(runs)
    names = [run.name if distinct else f"{run.parent.name}/{run.name}" for run in runs]
    read = {name: read_evaluations(run, key) for name, run in zip(names, runs, strict=True)}
    tables = {name: until(table, max_timesteps) for name, table in read.items() if table is not None}
    tables = {name: table for name, table in tables.items() if len(table)}
    if not tables:
        return None
    states = {name: RunFolder.at(run).state for name, run in zip(names, runs, strict=True)}
    joined, remark = join_whole_runs(tables, states)
    values = joined.to_numpy()
    n_runs = values.shape[1]
    return Curve(
        joined.index.to_numpy(),
        values.mean(axis=1),
        label,
        standard_error(values) if n_runs > 1 else None,
        n_runs,
        remark,
        tuple(Curve(table.index.to_numpy(), table.mean(axis=1).to_numpy(), label) for table in tables.values()),
    )


def time_unit(curves: list[Curve]) -> tuple[str, float]:
    """Return the unit in which the longest of `curves`, with ``x`` in seconds, is best read, and its seconds."""
    longest = max((float(curve.x[-1]) for curve in curves if len(curve.x)), default=0.0)
    return next(((name, seconds) for name, seconds, least in _TIME_UNITS if longest >= least), _TIME_UNITS[-1][:2])
