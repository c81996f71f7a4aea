"""The files of one run, read for the page. What cannot be read is named, with the reason, and left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from polyak.envs.reading import plain_json
from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.zoo.errors import ZooError
from polyak.zoo.evaluation_file import EVALUATIONS_NPZ, read_evaluation_file
from polyak.zoo.links import inside
from polyak.zoo.registry import algorithm_name, env_name
from polyak.zoo.report.films import FILMS
from polyak.zoo.report.groups import flatten, in_force, what_counts
from polyak.zoo.report.tail import Tail
from polyak.zoo.report.thinning import Thinned, rounded, thin
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.whole_runs import Reach

T = TypeVar("T")
Json = dict[str, Any]

#: What the time of training is split into, and the parts that the logger writes; see `polyak.collecting.time_split`.
TIME_SPLIT = {"collecting": ("env", "inference", "copy"), "learning": ("sample", "update"), "other": ("other",)}
_MONITOR = {"return": "r", "length": "l", "success": "is_success"}
_EVALUATIONS = {"return": "results", "length": "ep_lengths", "success": "successes"}
_STEPS, _SECONDS = "time/total_timesteps", "time/time_elapsed"
_LAST_EPISODES = 100
_MAX_WARNINGS = 200
_LONGEST_WARNING = 2_000
_MAX_SETTINGS = 10_000
#: Steps of one episode that are believed.
_LONGEST = 1e9
#: Seconds since 1970 that are believed.
_LATEST = 1e12


@dataclass
class TrainingEpisodes:
    """Finished episodes of training, by time.

    Fields, [episodes] each: ``steps`` of the environments so far, ``seconds`` since the first of them began; ``values``
    of each measure; ``started`` when that was, in seconds since 1970.
    """

    steps: np.ndarray
    seconds: np.ndarray
    values: dict[str, np.ndarray]
    started: float
    env_id: str = ""


@dataclass
class Run:
    """One run's folder, and the data read from it; reading again reads only changes.

    Args:
        path: the folder.
        name: what to call it: the path below the log folder.
    """

    path: Path
    name: str
    problems: list[Json] = field(default_factory=list)
    link_problems: list[Json] = field(default_factory=list)
    _tails: dict[Path, Tail] = field(default_factory=dict)
    _stamp: tuple[int, list[tuple[str, int, int]]] = (0, [])
    _page: Json = field(default_factory=dict)

    def read(self, n_points: int) -> Json:
        """Return the page's data of this run, its curves with at most `n_points` points each."""
        stamp = (n_points, _stamps(self.path))
        if stamp != self._stamp:
            self.problems = []
            self._page = self._read(n_points)
            self._stamp = stamp
        state = self.folder.state
        return {**self._page, "state": state.name, "description": state.description}

    @property
    def folder(self) -> RunFolder:
        """The layout of the folder."""
        return RunFolder.at(self.path)

    def films(self) -> list[Path]:
        """The videos in the folder and in the folders directly in it, the newest first."""
        found = [path for pattern in ("*", "*/*") for path in self.path.glob(pattern) if path.suffix.lower() in FILMS]
        real = []
        self.link_problems = []
        for path in found:
            if not inside(path, self.path):
                self.link_problems.append(self._problem(path, "it is a link that leads out of the run's folder"))
            elif path.is_file() and not path.is_symlink():
                real.append(path)
        return sorted(real, key=lambda path: (-path.stat().st_mtime, path.name))

    def _read(self, n_points: int) -> Json:
        config, args, system = (self._settings(name) for name in ("config.yml", "args.yml", "system.yml"))
        episodes = self._episodes()
        progress = self._progress()
        env = str(args.get("env") or "") or (episodes.env_id if episodes else "") or self.folder.env_id
        seed = args.get("seed")
        clock = _clock(episodes, progress)
        settings = {**flatten(in_force(config, args)), **flatten(args, "--")}
        evaluations = self._evaluations(clock)
        summary = _summary(episodes, progress)
        return {
            "name": self.name,
            "algo": algorithm_name(str(args.get("algo") or self.path.parent.name)).upper(),
            "env": env_name(env),
            "seed": seed if isinstance(seed, int) else None,
            "settings": settings,
            "counts": what_counts(config, args),
            "training": _training_curve(episodes, n_points),
            "evaluation": evaluations,
            "reach": self._reach(episodes, evaluations, summary["steps"])[1:],
            "logged": _logged_curves(progress, n_points),
            "time": time_split(progress),
            "system": flatten(system),
            "warnings": self._warnings(),
            **summary,
        }

    def _reach(self, episodes: TrainingEpisodes | None, evaluations: Json, steps: float) -> Reach:
        """How far the run went, by its episodes, its evaluations or its log, whichever there is."""
        state = self.folder.state
        if episodes is not None and len(episodes.steps):
            open_steps = np.clip(episodes.values["length"], 0, _LONGEST).max() * len(get_monitor_files(self.path))
            return Reach(state, float(episodes.steps[-1]), float(episodes.steps[-1] + open_steps))
        return Reach.of_evaluations(state, evaluations["steps"]) if evaluations else Reach(state, steps, steps)

    def _try(self, path: Path, reader: Callable[[], T]) -> T | None:
        """Return what `reader` makes of the file `path`, or None and a line among the problems."""
        try:
            if not inside(path, self.path):
                raise ValueError("it is a link that leads out of the run's folder")
            return reader()
        except (OSError, ValueError, KeyError, EOFError, OverflowError, MemoryError, RecursionError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            self._report(path, reason)
        except ZooError as error:
            self._report(path, str(error))
        return None

    def _report(self, path: Path, reason: str) -> None:
        self.problems.append(self._problem(path, reason))

    def _problem(self, path: Path, reason: str) -> Json:
        return {"file": f"{self.name}/{path.relative_to(self.path).as_posix()}", "reason": reason[:500]}

    def _settings(self, name: str) -> Json:
        path = self.folder.settings_folder / name
        return self._try(path, lambda: checked_settings(self.folder.read_yaml(name))) or {}

    def _warnings(self) -> list[str]:
        path = self.folder.settings_folder / "warnings.txt"
        if not path.is_file():
            return []
        text = self._try(path, lambda: _beginning(path)) or ""
        return [line[:_LONGEST_WARNING] for line in dict.fromkeys(text.splitlines())][:_MAX_WARNINGS]

    def _table(self, path: Path, required: tuple[str, ...]) -> tuple[Tail, dict[str, np.ndarray]]:
        tail = self._tails.setdefault(path, Tail(path, required))
        columns = self._try(path, tail.columns)
        if columns is None:
            return tail, {}
        if tail.is_cut:
            self._report(path, "its last row is cut; the rows before it are shown")
        if tail.n_refused:
            self._report(path, f"{tail.n_refused:,} of its rows are not numbers; the others are shown")
        return tail, columns

    def _episodes(self) -> TrainingEpisodes | None:
        """The monitor files of all training environments as one history."""
        starts, env_id, tables = [], "", []
        for path in map(Path, get_monitor_files(self.path)):
            tail, columns = self._table(path, ("r", "l", "t"))
            header = self._try(path, lambda: _monitor_header(tail)) if columns else None  # noqa: B023
            if header is None:
                continue
            start, named = header
            env_id = env_id or named
            starts.append(start)
            tables.append({**columns, "t": columns["t"] + start})
        if not tables:
            return None
        names = [name for name in _MONITOR.values() if all(name in table for table in tables)]
        joined = {name: np.concatenate([table[name] for table in tables]) for name in (*names, "t")}
        order = np.argsort(joined["t"], kind="stable")
        joined = {name: column[order] for name, column in joined.items()}
        values = {measure: joined[name] for measure, name in _MONITOR.items() if name in names}
        return TrainingEpisodes(
            np.cumsum(np.clip(joined["l"], 0, _LONGEST)), joined["t"] - min(starts), values, min(starts), env_id
        )

    def _progress(self) -> dict[str, np.ndarray]:
        path = self.path / "progress.csv"
        if not path.is_file():
            return {}
        columns = self._table(path, ())[1]
        if not columns or _STEPS not in columns:
            return {}
        rows = np.isfinite(columns[_STEPS])
        return {name: column[rows] for name, column in columns.items()}

    def _evaluations(self, clock: tuple[np.ndarray, np.ndarray]) -> Json:
        path = self.path / EVALUATIONS_NPZ
        if not path.is_file():
            return {}
        found = self._try(path, lambda: evaluations(path))
        if found is None or not len(found[0]) or not found[1]:
            return {}
        steps, measures = found
        seconds = np.interp(steps, *clock) if len(clock[0]) else np.full(len(steps), np.nan)
        curves = {
            measure: {
                "mean": rounded(table.mean(axis=1)),
                "low": rounded(table.min(axis=1)),
                "high": rounded(table.max(axis=1)),
            }
            for measure, table in measures.items()
        }
        episodes = next(iter(measures.values())).shape[1]
        return {"steps": steps.tolist(), "seconds": rounded(seconds, 6), "episodes": episodes, "measures": curves}


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_WARNINGS * _LONGEST_WARNING).decode("utf-8", "replace")


def checked_settings(content: Any) -> Json:
    """Return `content` if it is a mapping of few enough values to be written out; ValueError otherwise.

    A few lines of YAML that refer to each other can stand for more values than there is memory.
    """
    if not isinstance(content, dict):
        raise ValueError("it holds no names with values")
    waiting, n_values = [content], 0
    while waiting:
        value = waiting.pop()
        n_values += 1
        if n_values > _MAX_SETTINGS:
            raise ValueError(f"it stands for more than {_MAX_SETTINGS:,} values")
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return content


def evaluations(path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return steps [n], rising, and each measure [n, episodes]; errors as of `read_evaluation_file`."""
    file = read_evaluation_file(path, _EVALUATIONS.values())
    measures = {measure: file.tables[key] for measure, key in _EVALUATIONS.items() if key in file.tables}
    return file.steps, {measure: table for measure, table in measures.items() if table.shape[1]}


def time_split(progress: dict[str, np.ndarray]) -> dict[str, float]:
    """Return seconds of each part of `TIME_SPLIT` from the logger's shares, which are of the time since the last row.

    Empty without such columns. The clock of the log has whole seconds; the speed that stands beside it says where
    between two of them a row was written.
    """
    parts = [part for names in TIME_SPLIT.values() for part in names]
    if _SECONDS not in progress or not all(f"time/{part}" in progress for part in parts):
        return {}
    shares = np.stack([progress[f"time/{part}"] for part in parts])
    rows = np.isfinite(shares).all(axis=0) & np.isfinite(progress[_SECONDS])
    if not rows.any():
        return {}
    shares, whole, steps = shares[:, rows], progress[_SECONDS][rows], progress[_STEPS][rows]
    speed = progress.get("time/fps", np.zeros(len(rows)))[rows]
    exact = np.divide(steps, speed, out=whole.copy(), where=speed > 0)
    elapsed = np.maximum.accumulate(np.clip(exact, whole, whole + 1))
    spent = np.diff(elapsed, prepend=0.0)
    whole_percent = np.maximum(shares.sum(axis=0), 1)  # rounded shares make up 98 to 102
    seconds = dict(zip(parts, (shares / whole_percent * spent).sum(axis=1), strict=True))
    return {name: round(float(sum(seconds[part] for part in names)), 3) for name, names in TIME_SPLIT.items()}


def _monitor_header(tail: Tail) -> tuple[float, str]:
    """Return when the first episode began and the environment's id."""
    if not tail.comments:
        raise ValueError("its first line must be # and a header in JSON")
    header = plain_json.parse_object(tail.comments[0], "its header")
    if isinstance(header.get("t_start"), bool) or not isinstance(header.get("t_start"), int | float):
        raise ValueError("its header has no t_start")
    if not abs(header["t_start"]) < _LATEST:
        raise ValueError("its t_start is not a time")
    named = header.get("env_id")
    return float(header["t_start"]), "" if named in (None, "None") else str(named)


def _clock(episodes: TrainingEpisodes | None, progress: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and the seconds at which they were reached."""
    if episodes is not None and len(episodes.steps):
        return episodes.steps, episodes.seconds
    if _SECONDS in progress:
        rows = np.isfinite(progress[_SECONDS])
        return progress[_STEPS][rows], progress[_SECONDS][rows]
    return np.empty(0), np.empty(0)


def _training_curve(episodes: TrainingEpisodes | None, n_points: int) -> Json:
    if episodes is None or not len(episodes.steps):
        return {}
    return _curve(thin(episodes.steps, {**episodes.values, "seconds": episodes.seconds}, n_points))


def _logged_curves(progress: dict[str, np.ndarray], n_points: int) -> Json:
    """Everything that was logged and changed; time and evaluations have places of their own."""
    if not progress:
        return {}
    steps = np.maximum.accumulate(progress[_STEPS])
    values = {
        name: column
        for name, column in progress.items()
        if not name.startswith("time/") and not name.startswith("eval/") and np.isfinite(column).any()
    }
    if "time/fps" in progress:
        values["time/fps"] = progress["time/fps"]
    seconds = progress.get(_SECONDS, np.full(len(steps), np.nan))
    rows = np.isfinite(np.stack(list(values.values()))).any(axis=0) if values else np.zeros(len(steps), bool)
    if not rows.any():
        return {}
    return _curve(thin(steps[rows], {name: c[rows] for name, c in {**values, "seconds": seconds}.items()}, n_points))


def _curve(thinned: Thinned) -> Json:
    """Write a thinned curve for the page; extremes only where several rows were joined."""
    joined = bool((thinned.count > 1).any())
    measures = {}
    for name, mean in thinned.mean.items():
        if name == "seconds":
            continue
        measures[name] = {"mean": rounded(mean)}
        if joined:
            measures[name] |= {"low": rounded(thinned.low[name]), "high": rounded(thinned.high[name])}
    return {
        "steps": rounded(thinned.x, 8),
        "seconds": rounded(thinned.mean["seconds"], 6),
        "count": thinned.count.tolist(),
        "measures": measures,
    }


def _summary(episodes: TrainingEpisodes | None, progress: dict[str, np.ndarray]) -> Json:
    """The numbers of a run in the table of runs."""
    steps = seconds = 0.0
    summary: Json = {"episodes": 0, "last_return": None, "started": None}
    if episodes is not None:
        summary["started"] = round(episodes.started, 1)
    if episodes is not None and len(episodes.steps):
        steps, seconds = float(episodes.steps[-1]), float(episodes.seconds[-1])
        last = episodes.values["return"][-_LAST_EPISODES:]
        summary |= {"episodes": len(episodes.steps), "last_return": rounded(np.array([last.mean()]))[0]}
    if progress and len(progress[_STEPS]):
        steps = max(steps, float(progress[_STEPS].max()))
    return {**summary, "steps": round(steps), "seconds": round(seconds, 1)}


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    """Return name, time of change and size of every file that `Run` reads."""
    found = []
    for pattern in ("*.monitor.csv", "monitor.csv", "*.npz", "progress.csv", "*/*.yml", "*/warnings.txt"):
        for path in folder.glob(pattern):
            try:
                status = path.stat()
            except OSError:  # gone, or not ours to see: reading it will say so
                continue
            found.append((str(path), status.st_mtime_ns, status.st_size))
    return sorted(set(found))
