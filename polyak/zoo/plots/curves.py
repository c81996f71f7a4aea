"""Curves of runs: moving means of training's episodes, evaluations, and the mean of several runs of either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyak.envs.wrappers.monitor import LoadMonitorResultsError, get_monitor_files, load_results
from polyak.zoo.errors import ZooError
from polyak.zoo.evaluation_file import EVALUATIONS_NPZ, read_evaluation_file
from polyak.zoo.links import check_file, check_inside
from polyak.zoo.output import note
from polyak.zoo.run_folder import FINISHED, RunFolder
from polyak.zoo.whole_runs import Reach, whole_runs, without

if TYPE_CHECKING:
    import pandas as pd

EVALUATION_KEYS = {"reward": "results", "success": "successes", "length": "ep_lengths"}
"""Names of the quantities in evaluations.npz."""
MONITOR_COLUMNS = {"reward": "r", "success": "is_success", "length": "l"}
"""Names of the quantities in monitor.csv."""
#: Points of a mean curve at most: more than a printed line shows.
MOST_POINTS = 1000
#: A mean that ends after this share of the longest run needs no remark.
_NEARLY = 0.9
#: The name of a unit of time, its seconds, and the seconds from which on it is the one to read.
_TIME_UNITS = (("Hours", 3600.0, 2 * 3600.0), ("Minutes", 60.0, 2 * 60.0), ("Seconds", 1.0, 0.0))
#: Steps of one episode that are believed.
_LONGEST = 1e9
_NOWHERE = Reach(FINISHED, 0, 0)


@dataclass(eq=False)
class Curve:
    """One line of a figure: the values of a run, or of several runs side by side.

    Fields: ``x`` [n], steps, episodes or seconds; ``values`` [n, runs], of a single run also [n]; ``label`` its name;
    ``remark`` a note on how runs were joined; ``runs`` the curve of each run, including those left out of the mean;
    ``reach`` how far a single run got.
    """

    x: np.ndarray
    values: np.ndarray
    label: str = ""
    remark: str = ""
    runs: tuple[Curve, ...] = ()
    reach: Reach = _NOWHERE

    def __post_init__(self) -> None:
        self.values = np.asarray(self.values).reshape(len(self.x), -1)

    @property
    def n_runs(self) -> int:
        """The runs behind it."""
        return self.values.shape[1]

    @property
    def y(self) -> np.ndarray:
        """Mean over runs, [n]."""
        return self.values.mean(axis=1)

    @property
    def std_error(self) -> np.ndarray:
        """Standard error of that mean, [n]: 0 for a single run. The deviation is the population's, as in the Zoo."""
        return self.values.std(axis=1) / np.sqrt(self.n_runs)

    @property
    def error(self) -> np.ndarray | None:
        """The half-width of its band: the standard error; None for a single run."""
        return self.std_error if self.n_runs > 1 else None

    @property
    def last(self) -> np.ndarray:
        """The last value of each run, [runs]."""
        return self.values[-1]

    def thinned(self, most_points: int) -> Curve:
        """Return it at so many places at most, its values interpolated there."""
        if len(self.x) <= most_points:
            return self
        x = np.linspace(self.x[0], self.x[-1], most_points)
        return replace(self, x=x, values=np.stack([np.interp(x, self.x, of_run) for of_run in self.values.T], axis=1))

    def until(self, last: int) -> Curve | None:
        """Return the evaluations up to the step `last`, or all of them if that is not positive; None if there are
        none."""
        kept = self.x <= last if last > 0 else np.full(len(self.x), True)
        if not kept.any():
            return None
        x = self.x[kept]
        return replace(self, x=x, values=self.values[kept], reach=Reach.of_evaluations(self.reach.state, list(x)))


def training_curve(
    run: Path, x_axis: str, y_axis: str, window: int, max_timesteps: int = -1, label: str = ""
) -> Curve | None:
    """Read the monitor.csv files of `run` into a moving mean over `window` episodes; None if there is nothing.

    Short runs use as many episodes as there are, so that the first point is one episode and none is dropped. Files that
    cannot be read are named on stderr.
    """
    try:
        table = read_episodes(run)
        return None if table is None else episodes_curve(run, table, x_axis, y_axis, window, max_timesteps, label)
    except (LoadMonitorResultsError, ZooError, OSError) as error:
        note(f"left out: {error}")
        return None


def read_episodes(run: Path) -> pd.DataFrame | None:
    """Return all episodes of a run; None without monitor files. Errors of `load_results`, and ZooError for links."""
    files = get_monitor_files(run)
    for file in files:
        check_file(Path(file), run)
    return load_results(str(run)) if files else None


def finite_episodes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the episodes whose return, length and time are numbers, unlike those of a truncated row."""
    rows: pd.DataFrame = table[np.isfinite(table[["r", "l", "t"]].to_numpy(np.float64)).all(axis=1)]
    return rows


def episodes_curve(
    run: Path, table: pd.DataFrame, x_axis: str, y_axis: str, window: int, max_timesteps: int = -1, label: str = ""
) -> Curve | None:
    """Return the moving mean of a run's episodes; None if there are none. ZooError for a column without numbers."""
    name, table = MONITOR_COLUMNS[y_axis], finite_episodes(table)
    if name not in table or not len(table):
        return None
    if table[name].dtype.kind not in "biuf":
        raise ZooError(f"the column {name!r} in the monitor files of {run} holds other things than numbers.")
    steps = np.cumsum(np.clip(table["l"].to_numpy(), 0, _LONGEST))
    xs = {"steps": steps, "episodes": np.arange(1, len(table) + 1), "time": table["t"].to_numpy()}
    keep = steps <= max_timesteps if max_timesteps > 0 else np.full(len(steps), True)
    if not keep.any():
        return None
    values = table[name].to_numpy(dtype=float)[keep]
    last, open_steps = float(steps[keep][-1]), float(np.diff(steps, prepend=0).max()) * len(get_monitor_files(run))
    reach = Reach(RunFolder.at(run).state, last, last + open_steps)
    return Curve(xs[x_axis][keep], moving_mean(values, window), label, reach=reach)


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of each value with up to ``window - 1`` values before it; same length as `values`."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=float)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def read_evaluations(run: Path, key: str = "results") -> Curve | None:
    """Read the values of a run's evaluations under `key`: the mean over episodes at each step.

    None if the run has no such values; a file that cannot be read is named on stderr.
    """
    path = run / EVALUATIONS_NPZ
    if not path.is_file():
        return None
    try:
        check_inside(path, run)
        return evaluations_curve(run, key)
    except ZooError as error:
        note(f"left out: {error}")
    except (OSError, ValueError) as error:
        note(f"left out: {path} cannot be read ({error}). Is it half-written?")
    return None


def evaluations_curve(run: Path, key: str) -> Curve | None:
    """Return the evaluations of a run; None if it has no such values. Errors as of `read_evaluation_file`."""
    steps, tables, _ = read_evaluation_file(run / EVALUATIONS_NPZ, [key])
    table = tables.get(key)
    if table is None or not table.size:
        return None
    known = ~np.isnan(table)
    means = np.where(known, table, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    rows = known.any(axis=1)
    if not rows.any():
        return None
    return Curve(steps[rows], means[rows], reach=Reach.of_evaluations(RunFolder.at(run).state, steps[rows].tolist()))


def evaluation_keys(run: Path) -> frozenset[str]:
    """Return the keys that `read_evaluations` accepts for this run; none if there is no file, or a damaged one."""
    try:
        check_inside(run / EVALUATIONS_NPZ, run)
        return read_evaluation_file(run / EVALUATIONS_NPZ, ()).keys
    except (OSError, ValueError, ZooError):
        return frozenset()


def evaluation_curve(runs: list[Path], y_axis: str, max_timesteps: int = -1, label: str = "") -> Curve | None:
    """Read the evaluations.npz files of `runs`: mean over runs, with the standard error over them.

    Runs are joined by step: see `mean_of_runs`; the ``remark`` describes what was left out or interpolated. A single
    run has no error. None if no run was evaluated.

    Raises ZooError when the runs have no stretch of steps in common.
    """
    distinct = len({run.name for run in runs}) == len(runs)
    found = {}
    for run in runs:
        whole = read_evaluations(run, EVALUATION_KEYS[y_axis])
        if whole is not None and (curve := whole.until(max_timesteps)) is not None:
            found[run.name if distinct else f"{run.parent.name}/{run.name}"] = curve
    return mean_of_runs(found, label, evaluated=True) if found else None


def mean_of_runs(
    runs: Mapping[str, Curve], label: str, *, evaluated: bool = False, most_points: int = MOST_POINTS
) -> Curve:
    """Return the mean over `runs`, by name; its ``remark`` names the runs that were left out.

    The mean is over the runs that :func:`~polyak.zoo.whole_runs.whole_runs` keeps. The curve covers the stretch that
    these have in common; between two points of a run its value is interpolated, which is remarked of runs that were
    `evaluated` at different steps.

    Raises ZooError when there is no such stretch.
    """
    kept, left_out = whole_runs({name: curve.reach for name, curve in runs.items()})
    xs = [runs[name].x for name in kept]
    start, end, longest = max(x[0] for x in xs), min(x[-1] for x in xs), max(x[-1] for x in xs)
    spans = "; ".join(f"{name}: {len(x)} from {x[0]:,.0f} to {x[-1]:,.0f}" for name, x in zip(kept, xs, strict=True))
    if start > end:
        raise ZooError(
            f"{label}: the runs have no stretch in common, so they have no mean: {spans}. Draw each run: "
            "polyak plot --kind training, or plot them apart."
        )
    x = _grid(xs, start, end, most_points)
    values = np.stack([np.interp(x, runs[name].x, runs[name].y) for name in kept], axis=1)
    remarks = [without(left_out if evaluated else {f"run {name}": why for name, why in left_out.items()})]
    if evaluated and any(not np.array_equal(xs[0], x) for x in xs):
        remarks.append(
            f"the runs were evaluated at different steps ({spans}); values between two evaluations are interpolated, "
            f"and the curve goes from {start:,} to {end:,}."
        )
    elif not evaluated and end < _NEARLY * longest:
        remarks.append(f"the mean ends where the first run does, at {end:,.0f} of {longest:,.0f}.")
    return Curve(x, values, label, " ".join(filter(None, remarks)), tuple(runs.values()))


def _grid(xs: list[np.ndarray], start: float, end: float, most_points: int) -> np.ndarray:
    """Return where the runs have points between `start` and `end`, or as many places as an image can show."""
    places = np.unique(np.concatenate(xs))
    places = places[(places >= start) & (places <= end)]
    return places if len(places) <= most_points else np.linspace(start, end, most_points)


def time_unit(curves: Iterable[Curve]) -> tuple[str, float]:
    """Return the unit in which the longest of `curves`, with ``x`` in seconds, is best read, and its seconds."""
    longest = max((float(curve.x[-1]) for curve in curves if len(curve.x)), default=0.0)
    return next(((name, seconds) for name, seconds, least in _TIME_UNITS if longest >= least), _TIME_UNITS[-1][:2])
