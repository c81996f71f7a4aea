"""Run folders, found and read for the page. Unreadable files are named, with the reason, and left out."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polyak.envs.reading import plain_json, tables
from polyak.envs.reading.limits import check_regular
from polyak.envs.wrappers.monitor import LoadMonitorResultsError, get_monitor_files
from polyak.parts.cluster import BY_RUNNER
from polyak.zoo.errors import ZooError
from polyak.zoo.evaluation_file import EVALUATIONS_NPZ
from polyak.zoo.links import inside
from polyak.zoo.plots.curves import (
    EVALUATION_KEYS,
    MONITOR_COLUMNS,
    Curve,
    episodes_curve,
    evaluations_curve,
    finite_episodes,
    read_episodes,
)
from polyak.zoo.registry import algorithm_name, env_name
from polyak.zoo.report.groups import flatten, in_force, what_counts
from polyak.zoo.run_folder import RunFolder, State
from polyak.zoo.run_notes import PROGRESS
from polyak.zoo.whole_runs import Reach

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")
Columns = dict[str, np.ndarray]
Problem = dict[str, str]

#: Types of the videos that browsers play, by suffix.
FILMS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
#: Parts of the time of training, and the parts that the logger writes; see `polyak.collecting.time_split`.
TIME_SPLIT = {"collecting": ("env", "inference", "copy"), "learning": ("sample", "update"), "other": ("other",)}
#: Names of the curves on the page.
NAMES = {"reward": "return", "length": "episode length", "success": "success rate"}
BY_TIME = ", by time"
_STEPS, _SECONDS = "time/total_timesteps", "time/time_elapsed"
_LAST_EPISODES = 100
_MAX_WARNINGS, _LONGEST_WARNING = 200, 2_000
_KEPT_POINTS = 5_000
"""Largest number of points of a run's curves that are kept while the page is served."""
_WINDOW = 100
"""Episodes in the moving means of training."""


@dataclass
class Run:
    """One run, as the page shows it.

    Fields: ``path`` of its folder; ``name``, the path below the log folder; ``counts``, the settings that its seeds
    share; ``curves`` by name; ``facts`` of the table of runs by column; ``runners``, the data about remote runners;
    ``films``, the videos; ``problems``: files that could not be read, and why; ``group``, the name of its group.
    """

    path: Path
    name: str
    algo: str
    env: str
    settings: dict[str, str]
    counts: dict[str, str]
    curves: dict[str, Curve]
    facts: dict[str, str]
    system: dict[str, str]
    runners: list[dict[str, Any]]
    warnings: list[str]
    films: list[dict[str, Any]]
    problems: list[Problem]
    group: str = ""

    @property
    def state(self) -> State:
        """The current state of the run."""
        return RunFolder.at(self.path).state

    def experiment(self, top: Path) -> str:
        """Return the path between the log folder and the algorithm's."""
        return "/".join(self.path.relative_to(top).parts[:-2])


def find_runs(logs: Path, problems: list[Problem]) -> list[Path]:
    """Return the folders at or under `logs` that hold a run, sorted; folders that cannot be opened go to `problems`.

    Raises ZooError if there is no such folder.
    """
    if not logs.is_dir():
        what = "is a file, not a folder of runs" if logs.exists() else "does not exist"
        raise ZooError(f"The log folder {str(logs)!r} {what}. Give the --log-folder that you trained with.")

    def refused(error: OSError) -> None:
        problems.append({"file": str(error.filename), "reason": error.strerror or str(error)})

    found = []
    for place, folders, files in os.walk(logs, onerror=refused):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if _is_run(Path(place), files, folders):
            found.append(Path(place).resolve())
            folders.clear()
    return sorted(found, key=lambda path: [_natural(part) for part in path.parts])


def _is_run(place: Path, files: list[str], folders: list[str]) -> bool:
    if any(name.endswith("monitor.csv") or name in (EVALUATIONS_NPZ, PROGRESS) for name in files):
        return True
    return any((place / name / file).is_file() for name in folders for file in ("args.yml", "config.yml"))


def _natural(text: str) -> list[tuple[int, str]]:
    """Order ``X_10`` after ``X_9``."""
    head, _, tail = text.rpartition("_")
    return [(0, head), (int(tail), tail)] if head and tail.isdecimal() else [(0, text)]


def stamps(folder: Path) -> tuple[Any, ...]:
    """Return how a run stands, and name, time of change and size of each of its files."""
    found = []
    for path in sorted({*folder.glob("*"), *folder.glob("*/*")}):
        with suppress(OSError):  # gone, or without permission: reading it will report that
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size))
    return (RunFolder.at(folder).state, *found)


def read_run(path: Path, name: str) -> Run:
    """Read the run in the folder `path`; `name` is its name on the page."""
    folder, problems = RunFolder.at(path), list[Problem]()

    def report(file: Path, reason: str) -> None:
        problems.append({"file": f"{name}/{file.relative_to(path).as_posix()}", "reason": reason[:500]})

    def attempt(file: Path, reader: Callable[[], T], otherwise: T) -> T:
        try:
            if not inside(file, path):
                raise ValueError("it is a link that leads out of the run's folder")
            return reader()
        except (OSError, ValueError, KeyError, EOFError, OverflowError, MemoryError, RecursionError) as error:
            report(file, " ".join(str(error).split()) or type(error).__name__)
        except (ZooError, LoadMonitorResultsError) as error:
            report(file, " ".join(str(error).split()))
        return otherwise

    def settings_in(file: str) -> dict[str, Any]:
        return attempt(folder.settings_folder / file, lambda: folder.read_yaml(file), {})

    config, args, system = (settings_in(f"{file}.yml") for file in ("config", "args", "system"))
    monitors = [Path(file) for file in get_monitor_files(path)]
    whole = attempt(monitors[0], lambda: read_episodes(path), None) if monitors else None
    episodes = None if whole is None else finite_episodes(whole)
    if whole is not None and episodes is not None and len(episodes) < len(whole):
        report(monitors[0], f"{len(whole) - len(episodes):,} rows of episodes are not numbers; the others are shown")
    header = dict[str, Any]()
    progress_file, log, runners = path / PROGRESS, Columns(), list[dict[str, Any]]()
    frame = attempt(progress_file, lambda: read_frame(progress_file), None) if progress_file.is_file() else None
    if frame is not None:
        log = _known_steps(numbers_in(frame))
        runners = attempt(progress_file, lambda: runners_in(frame), runners)
    curves = dict[str, Curve]()
    if episodes is not None:
        header = attempt(monitors[0], lambda: _header(monitors[0]), header)
        curves = attempt(monitors[0], lambda: _training(path, episodes), curves)
    if (path / EVALUATIONS_NPZ).is_file():
        clock = [curves[name].x for name in (NAMES["reward"], NAMES["reward"] + BY_TIME) if name in curves]
        curves |= attempt(path / EVALUATIONS_NPZ, lambda: _evaluated(path, clock), dict[str, Curve]())
    curves |= _logged(log, folder.state)
    warnings_file = folder.settings_folder / "warnings.txt"
    warnings = attempt(warnings_file, lambda: _beginning(warnings_file), "") if warnings_file.is_file() else ""
    return Run(
        path,
        name,
        algorithm_name(str(args.get("algo") or path.parent.name)).upper(),
        env_name(str(args.get("env") or header.get("env_id") or folder.env_id)),
        {**flatten(in_force(config, args)), **flatten(args, "--")},
        what_counts(config, args),
        {name: curve.thinned(_KEPT_POINTS) for name, curve in curves.items()},
        {"Seed": str(args.get("seed", "-")), **_facts(episodes, curves, log), "Started": date(header.get("t_start"))},
        flatten(system),
        runners,
        [line[:_LONGEST_WARNING] for line in dict.fromkeys(warnings.splitlines())][:_MAX_WARNINGS],
        list(_films(path, name, report)),
        [problem for at, problem in enumerate(problems) if problem not in problems[:at]],
    )


def _training(path: Path, episodes: Any) -> dict[str, Curve]:
    """Return the moving means of a run's episodes, over steps and over time."""
    found = {
        NAMES[measure] + suffix: episodes_curve(path, episodes, axis, measure, _WINDOW)
        for axis, suffix in (("steps", ""), ("time", BY_TIME))
        for measure in MONITOR_COLUMNS
    }
    return {name: curve for name, curve in found.items() if curve is not None}


def _evaluated(path: Path, clock: list[np.ndarray]) -> dict[str, Curve]:
    """Return a run's evaluations over steps, and over time where a `clock` gives steps and their seconds."""
    curves = {}
    for measure, key in EVALUATION_KEYS.items():
        if (curve := evaluations_curve(path, key)) is not None:
            curves[f"evaluated {NAMES[measure]}"] = curve
            if clock:
                curves[f"evaluated {NAMES[measure]}{BY_TIME}"] = replace(
                    curve, x=np.interp(curve.x, clock[0], clock[1])
                )
    return curves


def _header(monitor: Path) -> dict[str, Any]:
    with monitor.open("rb") as file:
        return plain_json.parse_object(file.readline(tables.LONGEST_HEADER)[1:], "its header")


def read_table(path: Path) -> Columns:
    """Return the columns of a CSV file of numbers, [rows] each, NaN where a cell is none. Its last row may be cut.

    Raises OSError, and ValueError if it has no line of column names, two of one name, or far more cells than bytes.
    """
    return numbers_in(read_frame(path))


def numbers_in(frame: DataFrame) -> Columns:
    """Return the columns of a table as numbers, NaN where a cell is none."""
    import pandas as pd

    return {name: pd.to_numeric(frame[name], errors="coerce").to_numpy(np.float64) for name in frame.columns}


def read_frame(path: Path) -> DataFrame:
    """Return a CSV file as a table, with errors as of :func:`read_table`."""
    import pandas as pd

    check_regular(path, "it")
    with path.open("rb") as file:
        header = file.readline(tables.LONGEST_HEADER)
        if not header.endswith(b"\n"):
            raise ValueError("it has no line of column names (yet)")
        file.seek(0)
        tables.check_table(file, ",", "it")
        names = next(csv.reader([header.decode("utf-8", "replace").strip()]), [])
        if len(set(names)) != len(names):
            raise ValueError("two of its columns have the same name")
    how: dict[str, Any] = {"index_col": False, "encoding_errors": "replace", "on_bad_lines": "skip"}
    return pd.read_csv(path, low_memory=False, **how)


def runners_in(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the entries of each remote runner in the newest table of a log, with its number; empty if there are none.

    Raises ValueError if the entry is no such list.
    """
    told = frame[BY_RUNNER].dropna().tolist() if BY_RUNNER in frame else []
    if not told:
        return []
    found, keys = plain_json.parse(str(told[-1]), BY_RUNNER), ("node", "restarts", "rows_per_second")
    if not isinstance(found, list) or not all(isinstance(one, dict) and one.keys() >= set(keys) for one in found):
        raise ValueError(f"{BY_RUNNER} holds {found!r:.80} instead of a list of runners.")
    return [{"runner": place, **{key: one[key] for key in keys}} for place, one in enumerate(found, 1)]


def runner_row(runner: dict[str, Any]) -> dict[str, str]:
    """Write one of :func:`runners_in` for a table."""
    cells = {"Runner": runner["runner"], "Node": runner["node"] or "none now", "Restarts": runner["restarts"]}
    return {name: f"{value!s:.200}" for name, value in {**cells, "Rows/s": runner["rows_per_second"]}.items()}


def _known_steps(log: Columns) -> Columns:
    """Return the rows of a log that have a step; nothing if there is no such column."""
    if _STEPS not in log:
        return {}
    rows = np.isfinite(log[_STEPS])
    return {name: column[rows] for name, column in log.items()}


def _logged(log: Columns, state: State) -> dict[str, Curve]:
    """Return everything that was logged over steps; time and evaluations have places of their own."""
    curves = {}
    for name, column in log.items():
        rows = np.isfinite(column)
        if rows.any() and (name == "time/fps" or not name.startswith(("time/", "eval/"))):
            steps = np.maximum.accumulate(log[_STEPS])[rows]
            curves[name] = Curve(steps, column[rows], reach=Reach(state, steps[-1], steps[-1]))
    return curves


def _facts(episodes: Any, curves: dict[str, Curve], log: Columns) -> dict[str, str]:
    """Return the numbers of a run in the table of runs."""
    trained, evaluated = curves.get("return"), curves.get("evaluated return")
    steps = max(trained.x[-1] if trained else 0.0, log[_STEPS].max(initial=0.0) if log else 0.0)
    seconds = float(curves["return" + BY_TIME].x[-1]) if trained else None
    split = time_split(log)
    shares = {part: 100 * spent / (sum(split.values()) or 1) for part, spent in split.items()}
    return {
        "Steps": number(steps),
        "Episodes": number(0 if episodes is None else len(episodes)),
        "Return": number(episodes["r"][-_LAST_EPISODES:].mean() if trained else None),
        "Best evaluation": number(evaluated.y.max() if evaluated else None),
        "Last evaluation": number(evaluated.y[-1] if evaluated else None),
        "Time": duration(seconds),
        "Steps/s": number(steps / seconds if seconds else None),
        **{f"{part.capitalize()}, % of time": number(shares.get(part)) for part in TIME_SPLIT},
    }


def number(value: float | None) -> str:
    """Write a number for a table."""
    if value is None or not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """Write seconds in the unit that suits them."""
    if seconds is None or not np.isfinite(seconds):
        return "-"
    unit, size = next(
        (unit, size) for unit, size in (("h", 3600), ("min", 60), ("s", 1)) if seconds >= 2 * size or size == 1
    )
    return f"{seconds / size:.3g} {unit}"


def date(seconds: Any) -> str:
    """Write seconds since 1970 as a date."""
    try:
        return datetime.fromtimestamp(float(seconds)).strftime("%Y-%m-%d %H:%M")
    except (ValueError, TypeError, OverflowError, OSError):
        return "-"


def time_split(log: Columns) -> dict[str, float]:
    """Return the seconds of each part of `TIME_SPLIT`, from the logger's shares of the time since the last row.

    Empty without such columns. The clock of the log has whole seconds; the logged speed gives the fraction.
    """
    parts = [part for names in TIME_SPLIT.values() for part in names]
    if _SECONDS not in log or not all(f"time/{part}" in log for part in parts):
        return {}
    shares = np.stack([log[f"time/{part}"] for part in parts])
    rows = np.isfinite(shares).all(axis=0) & np.isfinite(log[_SECONDS])
    if not rows.any():
        return {}
    shares, whole, steps = shares[:, rows], log[_SECONDS][rows], log[_STEPS][rows]
    speed = log.get("time/fps", np.zeros(len(rows)))[rows]
    exact = np.divide(steps, speed, out=whole.copy(), where=speed > 0)
    elapsed = np.maximum.accumulate(np.clip(exact, whole, whole + 1))
    spent = np.diff(elapsed, prepend=0.0)
    whole_percent = np.maximum(shares.sum(axis=0), 1)  # rounded shares make up 98 to 102
    seconds = dict(zip(parts, (shares / whole_percent * spent).sum(axis=1), strict=True))
    return {name: round(float(sum(seconds[part] for part in names)), 3) for name, names in TIME_SPLIT.items()}


def _films(folder: Path, name: str, report: Callable[[Path, str], None]) -> Iterator[dict[str, Any]]:
    """Yield the videos in the folder and in the folders directly in it."""
    for path in sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern)):
        if path.suffix.lower() in FILMS and not inside(path, folder):
            report(path, "it is a link that leads out of the run's folder")
        elif path.suffix.lower() in FILMS and path.is_file() and not path.is_symlink():
            status, kind = path.stat(), FILMS[path.suffix.lower()]
            identifier = sha256(f"{path}\0{status.st_mtime_ns}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
            about = {"id": identifier + path.suffix.lower(), "name": f"{name}/{path.relative_to(folder).as_posix()}"}
            yield {**about, "path": path, "kind": kind, "bytes": status.st_size, "changed": status.st_mtime}


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_WARNINGS * _LONGEST_WARNING).decode("utf-8", "replace")
