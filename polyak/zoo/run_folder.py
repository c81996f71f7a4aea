"""Where a run keeps its files: ``<logs>/<algo>/<EnvId>_<n>/``, laid out as in RL Baselines3 Zoo.

::

    0.monitor.csv, 1.monitor.csv ...     episodes of each training environment
    best_model.zip  evaluations.npz      written by the evaluations
    rl_model_<steps>_steps.zip           checkpoints
    <EnvId>.zip                          the final model
    replay_buffer.pkl                    the replay buffer
    progress.csv                         what the logger wrote
    <EnvId>/config.yml  args.yml  command.txt  system.yml  warnings.txt  error.txt  vecnormalize.pkl
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from polyak.suggestions import did_you_mean
from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.links import check_inside
from polyak.zoo.plain_yaml import read_yaml_file, write_yaml
from polyak.zoo.registry import algorithm_name

ERROR = "error.txt"
"""In the folder of settings: the error that ended a failed training."""
_RUN = re.compile(r"(.+?)_(\d+)(_[0-9a-f-]{36})?")
_SAVED_AT = re.compile(r"(.+)_(\d+)_steps\.zip")
_CHECKPOINT = re.compile(r"rl_model_(\d+)_steps\.zip")


def file_name(env_id: str) -> str:
    """Return `env_id` as it is used in file names: ``ALE/Pong-v5`` -> ``ALE-Pong-v5``."""
    return env_id.replace("/", "-")


def run_name(folder: Path) -> str | None:
    """Return the environment, as it is used in file names, whose run `folder` is; None if it is no run's folder."""
    match = _RUN.fullmatch(folder.name)
    return match.group(1) if match else None


def run_numbers(parent: Path, env_id: str) -> dict[int, Path]:
    """Return the runs of exactly this environment under ``<logs>/<algo>``, by number."""
    folders = sorted(parent.iterdir()) if parent.is_dir() else []
    matches = [(_RUN.fullmatch(folder.name), folder) for folder in folders if folder.is_dir()]
    name = file_name(env_id)
    return {int(match.group(2)): folder for match, folder in matches if match and match.group(1) == name}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Fields: ``path`` the run's folder; ``env_id`` the environment's id as given to gymnasium; ``new`` the folders above
    it that were made for it, the innermost first.
    """

    path: Path
    env_id: str
    new: tuple[Path, ...] = ()

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
    def find(cls, logs: Path, algo: str, env_id: str, number: int = 0) -> RunFolder:
        """Find run `number` (0: the latest; -1: ``<logs>/<algo>`` itself); ZooError says what there is."""
        parent = logs / algorithm_name(algo).lower()
        if number == -1:
            return cls(parent, env_id)
        runs = run_numbers(parent, env_id)
        if number == 0 and runs:
            return cls(runs[max(runs)], env_id)
        if number in runs:
            return cls(runs[number], env_id)
        raise ZooError(
            f"No run {number or 'at all'} of {algo} on {env_id} under {parent}.{_what_there_is(parent, runs)}"
        )

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
        """Where a checkpoint, of any prefix, has its replay buffer or statistics; None if `model` is no checkpoint."""
        match = None if model.name == self.final_model.name else _SAVED_AT.fullmatch(model.name)
        return self.path / f"{match.group(1)}_{kind}_{match.group(2)}_steps.pkl" if match else None

    def checkpoints(self) -> dict[int, Path]:
        """Return the checkpoints by number of steps."""
        matches = [(_CHECKPOINT.fullmatch(path.name), path) for path in self.path.glob("rl_model_*_steps.zip")]
        return dict(sorted((int(match.group(1)), path) for match, path in matches if match))

    def model(self, *, best: bool = False, checkpoint: int | None = None, last_checkpoint: bool = False) -> Path:
        """Return the wanted model file; ZooError naming the files that exist if it is missing."""
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
        if not path.is_file():
            return {}
        check_inside(path, self.path)
        content = read_yaml_file(path) or {}
        if not isinstance(content, dict):
            raise ZooError(f"{path} must map names to values, but holds {content!r:.80}. Is it half-written?")
        return content

    def remove(self) -> None:
        """Delete the folder of a run that never started, and those above it that hold nothing else."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # another run is in there by now
            for folder in self.new:
                folder.rmdir()


def _what_there_is(parent: Path, runs: dict[int, Path]) -> str:
    if runs:
        return f" Runs there: {', '.join(map(str, runs))}."
    if not parent.is_dir():
        return " That folder does not exist: train first, or point -f at your logs."
    names = sorted({name for folder in parent.iterdir() if folder.is_dir() and (name := run_name(folder))})
    wanted = did_you_mean(parent.name, names)
    return f" Environments with runs there: {', '.join(names) or 'none'}.{wanted}"
