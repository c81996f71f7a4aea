"""``polyak train --resume FOLDER``: the run of a folder continues from its newest full checkpoint, as one run."""

from __future__ import annotations

import sys
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from polyak.writing import delete_left
from polyak.zoo.data.files import dataset_for, environment_of
from polyak.zoo.errors import ZooError
from polyak.zoo.links import check_file
from polyak.zoo.literals import parse_pairs
from polyak.zoo.options import default_of, is_given
from polyak.zoo.output import note
from polyak.zoo.registry import Environment, algorithm_name, env_name, find_algorithm, find_env, parameter_names
from polyak.zoo.run_folder import ARGUMENTS, ERROR, FAULT, FINISHED, FULL, INTERRUPTED, RunFolder
from polyak.zoo.settings import Settings, fit_batch, interpret
from polyak.zoo.untrusted import USER, ZooAuthor, given_kwargs, named_env, named_packages

if TYPE_CHECKING:
    from polyak.experience import Dataset

_FREE = ("resume", "verbose", "progress", "trust", "gym_packages", "device", "num_threads")
"""Options that a resumed run may be given otherwise."""
_SENDS = ("address", "working_dir", "track")
"""Options by which a folder would send data to others: the user gives them again, or trusts the folder."""
_SIZES = ("n_runners", "n_replay_shards", "n_eval_envs")
"""Options that a folder of others may give within limits only."""
_PATIENCE = 5.0
"""Seconds that workers of a killed run get to end."""


@dataclass
class Resumed:
    """A run that is resumed.

    Fields: ``options`` the options that it was begun with; ``env_kwargs`` further arguments of its environments;
    ``checkpoint`` the newest full one, None if the run was killed before the first.
    """

    options: Any
    algorithm: type[Any]
    environment: Environment
    settings: Settings
    folder: RunFolder
    dataset: Dataset | None
    env_kwargs: dict[str, Any]
    checkpoint: Path | None

    @classmethod
    def of(cls, options: Any, **instead: Any) -> Resumed:
        """Read the run in the folder ``options.resume``; `instead` are options that are not as it was begun with.

        Raises:
            ZooError: it is no run, or one that has ended or cannot be resumed; other options contradict those that it
                was begun with; the folder names code that the user neither names nor trusts.
        """
        folder = RunFolder.at(Path(options.resume))
        arguments = folder.read_yaml(ARGUMENTS) if folder.path.is_dir() else {}
        source = str(folder.settings_folder / ARGUMENTS)
        if not arguments:
            raise ZooError(f"--resume {options.resume!r} is no folder of a run: there is no {source}. Start the run.")
        author = ZooAuthor.of_file(options.trust, options.gym_packages)
        whole = _as_begun(options, {**arguments, **instead}, author, source)
        checkpoint = _newest(folder, whole)
        typed_algo, typed_env = (is_given(options, name) for name in ("algo", "env"))
        if ":" in whole.algo and not typed_algo:
            author.check_algorithm(whole.algo, source=source)
        algorithm = find_algorithm(options.algo if typed_algo else whole.algo)
        dataset = dataset_for(whole.dataset, algorithm, whole.algo, options.trust) if whole.dataset else None
        if whole.env:
            text, writer = (options.env, USER) if typed_env else (named_env(arguments, source), author)
            environment = find_env(text, whole.gym_packages, writer, source)
        else:
            environment = environment_of(whole, dataset)
        typed = parse_pairs(options.env_kwargs, "--env-kwargs")
        kwargs = {**given_kwargs(arguments, author, source, typed), **typed}
        evaluated = parse_pairs(whole.eval_env_kwargs, "--eval-env-kwargs")
        if not is_given(options, "eval_env_kwargs"):
            author.check_values(evaluated, source=source, key="eval_env_kwargs")
        overrides = frozenset(parse_pairs(whole.hyperparams, "--hyperparams"))
        config, raw = str(folder.settings_folder / "config.yml"), folder.read_yaml("config.yml")
        words = overrides if is_given(options, "hyperparams") else frozenset()
        settings = interpret(algorithm, whole.algo, raw, config, author, words).find_classes()
        fits = "batch_size" not in overrides and "n_epochs" in parameter_names(algorithm)
        if fits and (changed := fit_batch(settings)):
            note(changed)
        folder = RunFolder(folder.path, environment.name if environment.is_known else folder.env_id)
        return cls(whole, algorithm, environment, settings, folder, dataset, kwargs, checkpoint)

    def begin(self) -> None:
        """Delete the earlier program's files about its end, once the model is built."""
        for path in (self.folder.final_model, *map(self.folder.settings_folder.joinpath, (ERROR, FAULT, INTERRUPTED))):
            path.unlink(missing_ok=True)


def _as_begun(options: Any, arguments: dict[str, Any], author: ZooAuthor, source: str) -> Any:
    """Return the options that a run was begun with, updated by those given now that may change; ZooError for the
    others."""
    values: dict[str, Any] = {}
    for item in fields(options):
        name, default, now = item.name, default_of(item), getattr(options, item.name)
        was: Any = default if name == "env_kwargs" else arguments.get(name, default)
        kind = type(default)
        fits = isinstance(was, int | float) if kind is float else isinstance(was, kind)
        if not fits or (kind is list and not all(isinstance(word, str) for word in was)):
            raise ZooError(f"{source}: {name} must be a {kind.__name__}, got {was!r:.100}.")
        values[name] = was
        if name in _FREE:
            values[name] = now if now != default else was
        elif now != default and not _agree(name, now, arguments.get(name, default)):
            flag = item.metadata["flags"][0].partition("/")[0]
            raise ZooError(
                f"{flag} contradicts --resume: it is {now!r:.100}, and the run was begun with "
                f"{arguments.get(name, default)!r:.100}. Leave it out: the settings are those of the folder."
            )
        elif now != was and not author.is_trusted and _leads_elsewhere(name, was, default):
            raise ZooError(
                f"{source}: {name} is {was!r:.100}, which leads out of the folder. Give it again on the command line, "
                "or add --trust if you trust the folder."
            )
        elif name in _SIZES and now != was:
            author.check_values(was, source=source, key=name, kind="hyperparameter")
    mine = {"resume": options.resume, "trust": options.trust}
    mine["gym_packages"] = options.gym_packages or named_packages(arguments, author, source)
    return type(options)(**values | mine)


def _leads_elsewhere(name: str, was: Any, default: Any) -> bool:
    """Whether an option of a folder sends something to others, or writes far from where the user stands."""
    if name == "tensorboard_log":
        return Path(was).expanduser().is_absolute() or ".." in Path(was).parts
    return name in _SENDS and was != default


def _agree(name: str, now: Any, was: Any) -> bool:
    """Whether an option that is given again is the one that the run was begun with."""
    if name == "env_kwargs":
        return bool(parse_pairs(now, "--env-kwargs") == was)
    if name in ("env", "algo"):  # a user's own code may be given by another path
        short = env_name if name == "env" else algorithm_name
        return isinstance(was, str) and short(now).lower() == short(was).lower()
    return bool(now == was if not isinstance(was, list) else list(now) == was)


def _newest(folder: RunFolder, options: Any) -> Path | None:
    """The newest full checkpoint that is whole; None where the run was killed before the first."""
    found = folder.checkpoints(FULL)
    for path in reversed(found.values()):
        check_file(path, folder.path)
        if zipfile.is_zipfile(path):
            return path
        note(f"{path} is damaged, and left out.")
    if folder.state == FINISHED:
        raise ZooError(
            f"--resume {str(folder.path)!r}: the run has finished. --trained-agent {folder.final_model} continues with "
            "its model, in a new folder."
        )
    models = [
        path for path in (folder.best_model, *folder.checkpoints().values(), folder.final_model) if path.is_file()
    ]
    writes = options.save_freq > 0 and options.keep_full > 0 and options.save_format == "polyak"
    before_first = writes and not found and not folder.final_model.is_file() and len(folder.checkpoints()) < 2
    if models and not before_first:
        raise ZooError(
            f"--resume {str(folder.path)!r}: there is no whole full checkpoint, which --save-freq and signals write "
            f"(see --keep-full). --trained-agent {models[-1]} continues with a model of it, in a new folder."
        )
    note(f"there is no full checkpoint in {folder.path} yet: the run begins again.")
    return None


# -- one program at a time ---------------------------------------------------------------------------------------------


def locked(folder: RunFolder) -> IO[bytes]:
    """Lock a run until the file that this returns is closed: no other program resumes it meanwhile.

    Raises:
        ZooError: one does already. Workers of a killed one get some seconds to end.
    """
    file = (folder.settings_folder / ARGUMENTS).open("r+b")
    until = time.monotonic() + _PATIENCE
    while not _lock(file):
        if time.monotonic() > until:
            file.close()
            raise ZooError(f"--resume {str(folder.path)!r}: the run is still running. Stop it first, or wait.")
        time.sleep(0.1)
    return file


def _lock(file: Any) -> bool:
    """Lock a file until it is closed, or the program ends in whatever way; False: another program has locked it."""
    with suppress(OSError):  # not every file system has locks
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
    return True


def tidy(algorithm_folder: Path) -> None:
    """Delete unfinished files of killed processes in runs of an algorithm; those of running ones stay."""
    for folder in (algorithm_folder, *algorithm_folder.glob("*/"), *algorithm_folder.glob("*/*/")):
        if folder.is_dir() and not folder.is_symlink():
            delete_left(folder)
