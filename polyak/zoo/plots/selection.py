"""Selection of runs in log folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.output import note
from polyak.zoo.registry import algorithm_name, env_name
from polyak.zoo.run_folder import RunFolder, file_name, run_name, run_numbers

HER = "her"
"""Stands for the runs of any algorithm that replayed with hindsight; once, HER was an algorithm of its own."""


class Place(NamedTuple):
    """One algorithm in one folder of logs: ``algo`` in lower case, ``folder``, and the ``label`` of that folder."""

    algo: str
    folder: Path
    label: str


@dataclass(frozen=True)
class Selection:
    """The selected runs.

    Fields: ``folders`` of logs; ``algos``, all that have runs when empty; ``labels`` of the folders, by default the
    folders as they were typed. Raises ZooError when labels and folders do not fit together.
    """

    folders: Sequence[str]
    algos: Sequence[str] = ()
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.labels and len(self.labels) != len(self.folders):
            raise ZooError(f"--labels: {len(self.labels)} names for {len(self.folders)} folders. Give one for each.")
        twice = [name for name, count in Counter(self.labels or self.folders).items() if count > 1]
        if twice:
            flag = "--labels" if self.labels else "--exp-folders"
            raise ZooError(f"{flag}: {twice[0]!r} is given twice. Each folder needs a label of its own.")

    def places(self) -> list[Place]:
        """Return where to look: for each algorithm every folder."""
        found = {algo: None for folder in self.folders for algo in _algos_with_runs(Path(folder))}
        algos = dict.fromkeys(algorithm_name(algo).lower() for algo in self.algos) or found
        labels = self.labels or self.folders
        return [
            Place(algo, Path(folder), label)
            for algo in algos
            for folder, label in zip(self.folders, labels, strict=True)
        ]

    def name_of(self, place: Place) -> str:
        """Return the name of a place in legends: the algorithm and, for several folders, the folder's label."""
        return place.algo.upper() if len(self.folders) == 1 else f"{place.algo.upper()} {place.label.rstrip('/')}"

    def steps_of(self, texts: Sequence[str]) -> str:
        """Return the unit of steps of the runs on these environments: gradient steps for those with a dataset."""
        envs = [self.environment(text, quiet=True) for text in texts]
        runs = [(run, env) for env in envs for place in self.places() for run in runs_at(place, env).values()]
        kinds = {_learned_from_data(RunFolder(run, env)) for run, env in runs}
        return (
            "Environment or gradient steps"
            if len(kinds) == 2
            else f"{'Gradient' if True in kinds else 'Environment'} steps"
        )

    def environment(self, text: str, quiet: bool = False) -> str:
        """Return the environment, as in names of run folders, that `text` stands for.

        That is itself if it has runs; otherwise the one with runs that is called so in some version, or whose name
        contains it; unless `quiet`, a line on stderr says so. Raises ZooError when there are several.
        """
        name = file_name(env_name(text))
        found = sorted({env for counts in self._found().values() for env in counts})
        if name in found:
            return name
        versions = [env for env in found if re.fullmatch(re.escape(name) + r"-v\d+", env)]
        meant = versions or [env for env in found if name in env]
        if len(meant) > 1:
            raise ZooError(f"--env {text!r} could be any of {', '.join(meant)}. Give its whole name.")
        if meant and not quiet:
            note(f"--env {text!r} stands for {meant[0]}.")
        return meant[0] if meant else name

    def listing(self) -> str:
        """Say what there is, a line for each algorithm."""
        found = self._found()
        if not found:
            places = ", ".join(self.folders)
            return f" But there are no runs under {places}: train first, or point -f at your logs."
        runs = {place: ", ".join(f"{env} ({n})" for env, n in counts.items()) for place, counts in found.items()}
        return "".join(["\nRuns found:", *(f"\n  {place}: {envs}" for place, envs in runs.items())])

    def environments_with_runs(self, wanted: Sequence[str]) -> str:
        """Name the environments that do have runs, when those `wanted` have none."""
        found = {env for counts in self._found().values() for env in counts}
        names = [file_name(env_name(env)) for env in wanted]
        close = did_you_mean(names[0], found - set(names))
        return f"{close} Environments with runs: {', '.join(sorted(found)) or 'none'}."

    def _found(self) -> dict[str, dict[str, int]]:
        """Count the runs under each folder of an algorithm, by environment."""
        found: dict[str, dict[str, int]] = {}
        for place in self.places():
            for algo in _algos_with_runs(place.folder) if place.algo == HER else [place.algo]:
                if counts := _count_runs(place.folder / algo):
                    found[str(place.folder / algo)] = counts
        return found


def runs_at(place: Place, env: str) -> dict[str, Path]:
    """Return the runs of `env` (as in names of folders) at a place; their names are ``"3"``, with HER ``"TQC 3"``."""
    runs = {str(number): run for number, run in sorted(run_numbers(place.folder / place.algo, env).items())}
    if place.algo != HER:
        return runs
    others = [algo for algo in _algos_with_runs(place.folder) if algo != HER]
    return runs | {
        f"{algo.upper()} {number}": run
        for algo in others
        for number, run in sorted(run_numbers(place.folder / algo, env).items())
        if _replays_with_hindsight(RunFolder(run, env))
    }


def say_left_out(place: Place, env: str, what: str) -> None:
    """Print on stderr that a place has no data of the kind `what`."""
    others = set(_algos_with_runs(place.folder)) - {place.algo}
    close = did_you_mean(place.algo, others)
    if place.algo == HER:
        close = " (her stands for runs of any algorithm with a HerReplayBuffer in their config.yml.)"
    note(f"left out: no {what} of {place.algo} on {env} under {place.folder}.{close}")


def _replays_with_hindsight(run: RunFolder) -> bool:
    try:
        buffer = run.read_yaml("config.yml").get("replay_buffer_class")
    except ZooError as error:
        note(str(error))
        return False
    return str(buffer).rpartition(".")[2] == "HerReplayBuffer"


def _learned_from_data(run: RunFolder) -> bool:
    try:
        return bool(run.read_yaml("args.yml").get("dataset"))
    except ZooError:
        return False  # code that reads more of the run reports what is wrong with it


def _algos_with_runs(folder: Path) -> Iterator[str]:
    folders = sorted(folder.iterdir()) if folder.is_dir() else []
    return (path.name for path in folders if path.is_dir() and _count_runs(path))


def _count_runs(folder: Path) -> dict[str, int]:
    names = [run_name(run) for run in sorted(folder.glob("*_*")) if run.is_dir()]
    return dict(Counter(name for name in names if name is not None))
