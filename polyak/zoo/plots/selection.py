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
from polyak.zoo.run_folder import RunFolder, file_name, listing, run_numbers, runs_found

HER = "her"
"""A name for the runs of any algorithm with hindsight replay; HER used to be an algorithm of its own."""


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
        found = {algo: None for folder in self.folders for algo in runs_found(Path(folder))}
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

    def runs(self, texts: Sequence[str]) -> Iterator[Path]:
        """Yield the selected runs on these environments."""
        for env in [self.environment(text, quiet=True) for text in texts]:
            for place in self.places():
                yield from runs_at(place, env).values()

    def steps_of(self, texts: Sequence[str]) -> str:
        """Return the unit of steps of the runs on these environments: gradient steps for those with a dataset."""
        kinds = {_learned_from_data(RunFolder.at(run)) for run in self.runs(texts)}
        return (
            "Environment or gradient steps"
            if len(kinds) == 2
            else f"{'Gradient' if True in kinds else 'Environment'} steps"
        )

    def environment(self, text: str, quiet: bool = False) -> str:
        """Return the environment for `text`, as in names of run folders.

        That is `text` itself if it has runs; otherwise the one with runs that has this name in some version, or whose
        name contains it; unless `quiet`, a line on stderr names it. Raises ZooError when there are several.
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
        """Return a list of the runs, a line for each algorithm."""
        return listing([Path(folder) for folder in self.folders], [place.algo for place in self.places()])

    def environments_with_runs(self, wanted: Sequence[str]) -> str:
        """Return a list of the runs for the case that the environments `wanted` have none, with the closest names."""
        found = {env for counts in self._found().values() for env in counts}
        names = [file_name(env_name(env)) for env in wanted]
        return did_you_mean(names[0], found - set(names)) + self.listing()

    def _found(self) -> dict[Path, dict[str, int]]:
        """Count the runs under each folder of an algorithm, by environment."""
        return {
            place.folder / algo: counts
            for place in self.places()
            for algo, counts in runs_found(place.folder).items()
            if algo == place.algo or place.algo == HER
        }


def runs_at(place: Place, env: str) -> dict[str, Path]:
    """Return the runs of `env` (as in names of folders) at a place; their names are ``"3"``, with HER ``"TQC 3"``."""
    runs = {str(number): run for number, run in sorted(run_numbers(place.folder / place.algo, env).items())}
    if place.algo != HER:
        return runs
    others = [algo for algo in runs_found(place.folder) if algo != HER]
    return runs | {
        f"{algo.upper()} {number}": run
        for algo in others
        for number, run in sorted(run_numbers(place.folder / algo, env).items())
        if _replays_with_hindsight(RunFolder(run, env))
    }


def say_left_out(place: Place, env: str, what: str) -> None:
    """Print on stderr that a place has no data of the kind `what`."""
    others = runs_found(place.folder).keys() - {place.algo}
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
        return False  # code that reads more of the run reports the error
