"""Where a run keeps its files: ``<logs>/<algo>/<EnvId>_<n>/``, laid out as in RL Baselines3 Zoo.

::

    0.monitor.csv, 1.monitor.csv ...     episodes of each training environment
    best_model.zip  evaluations.npz      written by the evaluations
    rl_model_<steps>_steps.zip           checkpoints
    full_<steps>_steps.zip               the newest full checkpoint, of a run that has not finished
    <EnvId>.zip                          the final model
    replay_buffer.pkl                    the replay buffer
    progress.csv                         what the logger wrote
    <EnvId>/config.yml  args.yml  command.txt  system.yml  warnings.txt  vecnormalize.pkl
    <EnvId>/tensorboard.yml              which folder of TensorBoard's is the run's
    <EnvId>/interrupted.yml  error.txt  fault.yml   of a run that was stopped, or failed
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from polyak.suggestions import did_you_mean
from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.links import check_inside
from polyak.zoo.plain_yaml import read_mapping, write_yaml
from polyak.zoo.registry import algorithm_name
from polyak.zoo.sizes import MOST_STEPS

ARGUMENTS = "args.yml"
"""In the folder of settings: the options that a training was begun with. Locked while the training runs."""
ERROR = "error.txt"
"""In the folder of settings: the error that ended a failed training."""
EVENTS = "tensorboard.yml"
"""In the folder of settings: TensorBoard's folder of a training, and what was in it before the first step."""
FULL = "full"
"""Full checkpoints are called ``full_<steps>_steps.zip``, others ``rl_model_<steps>_steps.zip``."""
FAULT = "fault.yml"
"""In the folder of settings: the error and the steps after which it occurred, for ``polyak replay-fault``."""
INTERRUPTED = "interrupted.yml"
"""In the folder of settings: the steps at which a signal stopped a training, and its planned steps."""
STILL_RUNNING = 300.0
"""A run that has not ended and wrote something in so many seconds is taken to be running."""
_NAMED = 3
"""Runs that are named when others are passed over."""
_RUN = re.compile(r"(.+?)_(\d+)(_[0-9a-f-]{36})?")
_SAVED_AT = re.compile(r"(.+)_(\d+)_steps\.zip")


def file_name(env_id: str) -> str:
    """Return `env_id` as it is used in file names: ``ALE/Pong-v5`` -> ``ALE-Pong-v5``."""
    return env_id.replace("/", "-")


def run_name(folder: Path) -> str | None:
    """Return the environment of a run's folder, as in file names; None if it is no run's folder."""
    match = _RUN.fullmatch(folder.name)
    return match.group(1) if match else None


def run_numbers(parent: Path, env_id: str) -> dict[int, Path]:
    """Return the runs of exactly this environment under ``<logs>/<algo>``, by number."""
    folders = sorted(parent.iterdir()) if parent.is_dir() else []
    matches = [(_RUN.fullmatch(folder.name), folder) for folder in folders if folder.is_dir()]
    name = file_name(env_id)
    return {int(match.group(2)): folder for match, folder in matches if match and match.group(1) == name}


def runs_found(logs: Path) -> dict[str, dict[str, int]]:
    """Return how many runs there are under `logs`: algorithm -> environment, as in file names -> number."""
    algos = sorted(path for path in logs.iterdir() if path.is_dir()) if logs.is_dir() else []
    names = {algo.name: [run_name(run) for run in sorted(algo.glob("*_*")) if run.is_dir()] for algo in algos}
    counts = {algo: dict(Counter(filter(None, found))) for algo, found in names.items()}
    return {algo: found for algo, found in counts.items() if found}


def listing(logs: Sequence[Path], algos: Sequence[str] = ()) -> str:
    """Return a list of the runs under the folders `logs`: a line for each algorithm, or for each of `algos`.

    If none of these has any, a line names the closest algorithms that do, and all others follow.
    """
    found = {(folder, algo): envs for folder in logs for algo, envs in runs_found(folder).items()}
    if not found:
        return f" There are no runs under {', '.join(map(str, logs))}: train first, or point -f at your logs."
    there = dict.fromkeys(algo for _, algo in found)
    shown = [algo for algo in algos if algo in there]
    hints = "" if shown else "".join(did_you_mean(algo, there) for algo in algos)
    none = f" There are none of {', '.join(algos)}.{hints}" if algos and not shown else ""
    lines = [
        f"\n  {folder / algo}: {', '.join(f'{env} ({n})' for env, n in envs.items())}"
        for (folder, algo), envs in found.items()
        if not shown or algo in shown
    ]
    return f"{none}\nRuns found:{''.join(lines)}"


class State(NamedTuple):
    """The state of a run.

    Fields: ``name``: running, finished, failed or interrupted; ``description``: the same as a predicate of the run.
    """

    name: str
    description: str


FINISHED = State("finished", "finished")


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Fields: ``path`` the run's folder; ``env_id`` the environment's id as given to gymnasium; ``new`` the folders above
    it that were made for it, the innermost first; ``choice`` the message about a run that was chosen from several.
    """

    path: Path
    env_id: str
    new: tuple[Path, ...] = ()
    choice: str = ""

    @classmethod
    def create(cls, logs: Path, algo: str, env_id: str, unique: bool = False) -> RunFolder:
        """Make the next free folder of ``<logs>/<algo>/``; `unique` appends a random identifier to its name."""
        parent = logs / algorithm_name(algo).lower()
        number = max(run_numbers(parent, env_id), default=0) + 1
        new = tuple(above for above in (parent, *parent.parents) if not above.exists())
        while True:
            path = parent / f"{file_name(env_id)}_{number}{f'_{uuid4()}' if unique else ''}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:  # another process took the number between the look and the mkdir
                number += 1
            except OSError as error:
                raise ZooError(f"Cannot make the run folder {path} (--log-folder {logs}): {error}.") from error
            else:
                folder = cls(path, env_id, new)
                folder.settings_folder.mkdir()
                return folder

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Return the run in a folder of any name; without a number at its end, it has one sub-folder of settings."""
        name = run_name(path)
        if name is None:
            places = sorted(place.parent.name for place in path.glob("*/*.yml"))
            name = places[0] if places else path.name
        return cls(path, name)

    @classmethod
    def find(cls, logs: Path, algo: str, env_id: str, number: int = 0, *, finished: bool = True) -> RunFolder:
        """Find a run; its ``choice`` explains which run was chosen.

        Args:
            logs: the folder of logs.
            algo: the algorithm, as given to train.
            env_id: the environment's id as given to gymnasium.
            number: number of the run. 0: the latest that finished; if none has, the latest with a model, or else the
                latest. -1: ``<logs>/<algo>`` itself.
            finished: False makes 0 the latest, in any state.

        Raises:
            ZooError: there is no such run; the message lists the runs.
        """
        parent = logs / algorithm_name(algo).lower()
        if number == -1:
            return cls(parent, env_id)
        runs = run_numbers(parent, env_id)
        if number in runs:
            run = cls(runs[number], env_id)
            is_whole = run.state == FINISHED
            return (
                run if is_whole else replace(run, choice=f"run {number} of {algo} on {env_id} {run.state.description}.")
            )
        if number == 0 and runs:
            return cls._latest(runs, f"{algo} on {env_id}", env_id, finished)
        there = _what_there_is(logs, parent, runs, env_id)
        raise ZooError(f"No run {number or 'at all'} of {algo} on {env_id} under {parent}.{there}")

    @classmethod
    def _latest(cls, runs: dict[int, Path], whose: str, env_id: str, finished: bool) -> RunFolder:
        """Choose the latest of `runs`, or the latest that `finished`, with a message about the choice."""
        latest_first = {number: cls(runs[number], env_id) for number in sorted(runs, reverse=True)}
        whole = (number for number, run in latest_first.items() if run.state == FINISHED)
        with_model = (number for number, run in latest_first.items() if run.final_model.is_file())
        number = next(chain(whole, with_model, latest_first)) if finished else max(runs)
        run = latest_first[number]
        later = [other for other in latest_first if other > number]
        why = "the latest" if len(runs) > 1 else "the only one"
        if run.state == FINISHED:
            why += " that finished" if later else ""
        else:
            why += " with a model" if later else ""
            why = f"none has finished, and it is {why}" if finished and len(runs) > 1 else why
            why += f", which {run.state.description}"
        passed = "".join(f"; run {other} {latest_first[other].state.description}" for other in later[:_NAMED])
        passed += f"; {len(later) - _NAMED} more did not finish" if len(later) > _NAMED else ""
        others = f"{passed} (--exp-id takes another)" if later else ""
        return replace(run, choice=f"run {number} of {whose} is taken: {why}{others}.")

    @property
    def state(self) -> State:
        """The state of the run. If it ended without a final model, as by SIGKILL, it is interrupted, too."""
        if (self.settings_folder / ERROR).is_file():
            return State("failed", "failed with an error")
        if (self.settings_folder / INTERRUPTED).is_file():
            steps, of = self.interruption
            return State("interrupted", "was interrupted" + (f" after {steps:,} of {of:,} steps" if of else ""))
        if self.final_model.is_file():
            return FINISHED
        if time.time() - self._last_change() < STILL_RUNNING:
            return State("running", "is running")
        return State("interrupted", "ended without a final model")

    @property
    def interruption(self) -> tuple[int, int]:
        """The steps at which a signal stopped the training, and its planned steps; 0 without a file."""
        with suppress(ZooError):
            found = [self.read_yaml(INTERRUPTED).get(key) for key in ("steps", "of")]
            steps, of = (number if isinstance(number, int) and 0 <= number <= MOST_STEPS else 0 for number in found)
            return steps, of
        return 0, 0

    def write_interruption(self, steps: int, of: int) -> None:
        """Note that a signal stopped the training after `steps` of these steps, before its model looks finished."""
        with suppress(OSError):  # the disk may be full; other losses are reported when the model is saved
            self.write_yaml(INTERRUPTED, {"steps": steps, "of": of})

    def write_fault(self, error: BaseException, steps: int) -> None:
        """Note which error ended the training after `steps`, so that it can be run again."""
        fault = {"error": type(error).__name__, "message": str(error), "steps": steps}
        with suppress(OSError):
            self.write_yaml(FAULT, fault)

    def _last_change(self) -> float:
        """Return the time of the last write by a training, in seconds since 1970."""
        files = (path for kind in ("*.csv", "*.npz", "*.zip", "*/*.yml", "*/*.txt") for path in self.path.glob(kind))
        newest = 0.0
        for path in files:
            with suppress(OSError):  # gone, or without permission
                newest = max(newest, path.stat().st_mtime)
        return newest

    @property
    def number(self) -> int:
        """The number at the end of the folder's name; -1 if it has none."""
        match = _RUN.fullmatch(self.path.name)
        return int(match.group(2)) if match else -1

    @property
    def settings_folder(self) -> Path:
        """The sub-folder of config.yml, args.yml, command.txt and the normalisation statistics."""
        return self.path / file_name(self.env_id)

    @property
    def final_model(self) -> Path:
        """The model as it was when training ended."""
        return self.path / f"{file_name(self.env_id)}.zip"

    @property
    def best_model(self) -> Path:
        """The model of the best evaluation."""
        return self.path / "best_model.zip"

    @property
    def replay_buffer(self) -> Path:
        """The replay buffer, when ``--save-replay-buffer`` was given."""
        return self.path / "replay_buffer.pkl"

    @property
    def normalizer(self) -> Path:
        """The statistics of VecNormalize at the end of training."""
        return self.settings_folder / "vecnormalize.pkl"

    def normalizer_of(self, model: Path) -> Path | None:
        """The file of the statistics that belong to a model file without any: its checkpoint's, or the run's."""
        own = self._beside_checkpoint(model, "vecnormalize")
        return next((path for path in (own, self.normalizer) if path is not None and path.is_file()), None)

    def replay_buffer_of(self, model: Path) -> Path | None:
        """The file of the replay buffer that belongs to a model file: its checkpoint's or the run's, if it is there."""
        own = self._beside_checkpoint(model, "replay_buffer")
        at_the_end = own is None and model.name != self.best_model.name
        found = self.replay_buffer if at_the_end else own
        return found if found is not None and found.is_file() else None

    def _beside_checkpoint(self, model: Path, kind: str) -> Path | None:
        """Return the path of a checkpoint's replay buffer or statistics, for any prefix; None if `model` is no
        checkpoint."""
        match = None if model.name == self.final_model.name else _SAVED_AT.fullmatch(model.name)
        return self.path / f"{match.group(1)}_{kind}_{match.group(2)}_steps.pkl" if match else None

    def checkpoints(self, prefix: str = "rl_model") -> dict[int, Path]:
        """Return the checkpoints by number of steps; `FULL` is the prefix of full ones."""
        matches = [(_SAVED_AT.fullmatch(path.name), path) for path in self.path.glob("*_steps.zip")]
        return dict(sorted((int(match[2]), path) for match, path in matches if match and match[1] == prefix))

    def model(self, *, best: bool = False, checkpoint: int | None = None, last_checkpoint: bool = False) -> Path:
        """Return the selected model file; a ZooError lists the existing files if it is missing."""
        if checkpoint is not None or last_checkpoint:
            found = self.checkpoints()
            steps = max(found, default=0) if checkpoint is None else checkpoint
            if steps in found:
                return found[steps]
            have = ", ".join(map(str, found)) or "none (train with --save-freq)"
            raise ZooError(f"No checkpoint at {steps} steps in {self.path}. Checkpoints there: {have}.")
        path = self.best_model if best else self.final_model
        if path.is_file():
            return path
        have = ", ".join(sorted(file.name for file in self.path.glob("*.zip"))) or "none"
        raise ZooError(f"No model {path}. Model files in that folder: {have}.")

    def write_yaml(self, name: str, content: dict[str, Any]) -> None:
        """Write ``<EnvId>/<name>`` as plain YAML (no Python objects)."""
        with replacing(self.settings_folder / name) as file:
            file.write(write_yaml(content).encode())

    def read_yaml(self, name: str) -> dict[str, Any]:
        """Read ``<EnvId>/<name>``, the Zoo's own too; an empty dict when the file is missing.

        Raises ZooError if it is not plain, or a link that leads out of the run's folder.
        """
        path = self.settings_folder / name
        if path.is_file():
            check_inside(path, self.path)
        return read_mapping(path)

    def remove(self) -> None:
        """Delete the folder of a run that never started, and those above it that hold nothing else."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # another run is in there by now
            for folder in self.new:
                folder.rmdir()


def _what_there_is(logs: Path, parent: Path, runs: dict[int, Path], env_id: str) -> str:
    if runs:
        return f" Runs there: {', '.join(map(str, runs))}."
    envs = runs_found(logs).get(parent.name, {})
    return did_you_mean(file_name(env_id), envs) + listing([logs], [parent.name])
