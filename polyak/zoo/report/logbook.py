"""All runs under a folder: found, read, grouped, and written as the data of the page."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from hashlib import sha256
from pathlib import Path

from polyak.zoo.errors import ZooError
from polyak.zoo.report.groups import labels
from polyak.zoo.report.run_files import Json, Run
from polyak.zoo.run_folder import State
from polyak.zoo.whole_runs import Reach, whole_runs

#: Points of one run's curves: as many as a screen shows for a few runs, fewer for very many.
MOST_POINTS, FEWEST_POINTS, ALL_POINTS = 400, 50, 40_000


class Logbook:
    """The runs under a log folder. Reading it again costs only what changed.

    Args:
        logs: ``<logs>``, ``<logs>/<algo>`` or a single run.

    Raises:
        ZooError: there is no such folder.
    """

    def __init__(self, logs: Path) -> None:
        if not logs.is_dir():
            what = "is a file, not a folder of runs" if logs.exists() else "does not exist"
            raise ZooError(f"The log folder {str(logs)!r} {what}. Give the --log-folder that you trained with.")
        self.logs = logs
        self._runs: dict[Path, Run] = {}
        self._films: dict[str, Path] = {}

    def read(self) -> Json:
        """Return what the page shows: runs, films without their contents, and the files that could not be read."""
        problems: list[Json] = []
        folders = find_runs(self.logs, problems)
        top = self.logs.resolve()
        self._runs = {path: self._runs.get(path) or Run(path, _name(path, top)) for path in folders}
        n_points = min(MOST_POINTS, max(FEWEST_POINTS, ALL_POINTS // max(len(folders), 1)))
        pages = [{"id": _identifier(path), **run.read(n_points)} for path, run in self._runs.items()]
        films = self._list_films()
        for run in self._runs.values():
            problems += run.problems + run.link_problems
        _group(pages, [_experiment(path, top) for path in self._runs])
        return {"logs": self.logs.as_posix(), "runs": pages, "films": films, "problems": problems}

    def film(self, identifier: str) -> Path | None:
        """Return the video that the last reading named so."""
        return self._films.get(identifier)

    def _list_films(self) -> list[Json]:
        listed: list[tuple[float, Json]] = []
        self._films = {}
        for path, run in self._runs.items():
            for film in run.films():
                status = film.stat()
                name = film.relative_to(path).as_posix()
                identifier = _identifier(film, status.st_mtime_ns)
                self._films[identifier] = film
                row = {"id": identifier, "run": _identifier(path), "name": name, "bytes": status.st_size}
                listed.append((-status.st_mtime, {**row, "kind": film.suffix.lower()[1:]}))
        return [row for _, row in sorted(listed, key=lambda item: (item[0], item[1]["name"], item[1]["id"]))]


def find_runs(logs: Path, problems: list[Json]) -> list[Path]:
    """Return the folders at or under `logs` that hold a run, sorted; folders that cannot be opened go to `problems`."""

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
    if any(name.endswith("monitor.csv") or name in ("evaluations.npz", "progress.csv") for name in files):
        return True
    return any((place / name / file).is_file() for name in folders for file in ("args.yml", "config.yml"))


def _natural(text: str) -> list[tuple[int, str]]:
    """Order ``X_10`` after ``X_9``."""
    head, _, tail = text.rpartition("_")
    return [(0, head), (int(tail), tail)] if head and tail.isdecimal() else [(0, text)]


def _name(path: Path, top: Path) -> str:
    """Return the folder's path below the log folder: ``ppo/CartPole-v1_1``."""
    below = path.relative_to(top).parts
    return "/".join([*path.parent.parts[-1:], path.name] if len(below) < 2 else below)


def _experiment(path: Path, top: Path) -> str:
    """Return the path between the log folder and the algorithm's."""
    return "/".join(path.relative_to(top).parts[:-2])


def _identifier(path: Path, version: int = 0) -> str:
    return sha256(f"{path}\0{version}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _group(pages: list[Json], experiments: list[str]) -> None:
    """Give every run the label of those it belongs with, and why their mean is without it, if it is; in place."""
    families: dict[tuple[str, str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    places = []
    for page, experiment in zip(pages, experiments, strict=True):
        counts = page.pop("counts")
        place = (page["env"], experiment, page["algo"])
        key = json.dumps(counts, sort_keys=True)
        families[place][key] = counts
        places.append((place, key))
    for page, (place, key) in zip(pages, places, strict=True):
        named = labels(families[place], place[2])
        page["group"] = f"{place[1]} {named[key]}".strip()
    members: dict[tuple[str, str], dict[str, Json]] = defaultdict(dict)
    for page in pages:
        members[page["env"], page["group"]][page["id"]] = page
    for group in members.values():
        states = {name: State(page["state"], page["description"]) for name, page in group.items()}
        left_out = whole_runs({name: Reach(states[name], *page.pop("reach")) for name, page in group.items()})[1]
        for name, page in group.items():
            page["left_out"] = left_out.get(name, "")
