"""``polyak replay-fault``: a training that failed is run again, to the same error."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from polyak.zoo.errors import TrainingFailed, ZooError, readable, usage_errors
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import note
from polyak.zoo.run_folder import FAULT, FULL, RunFolder
from polyak.zoo.train import TrainOptions, resume


@dataclass
class ReplayFaultOptions(CommandOptions):
    """Run a training that failed again, from its newest full checkpoint, or else from its beginning."""

    folder: str = option("", help="Folder of the run.")
    algo: str = option("", "--algo", "-a", help="Your own algorithm, as it was given to train.")
    env: str = option("", "--env", "-e", help="Your own environment, as it was given to train.")
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    trust: bool = option(
        False, "--trust/", help="Also run code that the run's files name or hold; for files that you trust only."
    )
    verbose: int = option(0, "--verbose", help="0 silent, 1 tables, 2 also details.")


def replay_fault(options: ReplayFaultOptions) -> None:
    """Train in a copy of the run's folder until the error occurs again, and print where it occurred.

    Raises ZooError if there is no such run, or it did not fail; exits with status 1 if another error occurs, or none.
    """
    folder = RunFolder.at(Path(options.folder))
    fault = folder.read_yaml(FAULT) if folder.path.is_dir() else {}
    if not fault:
        raise ZooError(f"{options.folder!r} is no folder of a run that failed: there is no {FAULT} in it.")
    begun = max(folder.checkpoints(FULL), default=0)
    with TemporaryDirectory(prefix="polyak-fault-") as above:
        copy = Path(above) / folder.path.name
        left_out = "rl_model_*", folder.best_model.name, folder.final_model.name
        with usage_errors(f"Cannot copy {folder.path}"):
            shutil.copytree(folder.path, copy, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
        known = {name: getattr(options, name) for name in ("env", "gym_packages", "trust", "verbose")}
        known |= {"algo": options.algo} if options.algo else {}
        found: dict[str, Any] = {}
        try:
            resume(TrainOptions(resume=str(copy), **known), tensorboard_log="", track=False, progress=False)
        except TrainingFailed as failed:
            found = RunFolder(copy, folder.env_id).read_yaml(FAULT)
            print(readable(failed.cause), end="")
        if _timeless(found, copy) != _timeless(fault, folder.path):
            came = f"{found['error']} after {found['steps']:,} steps" if found else "no error"
            note(f"{came} came, and not {fault['error']} after {fault['steps']:,} steps: something else has changed.")
            raise SystemExit(1)
    print(f"The same {fault['error']} after {fault['steps']:,} steps, run again from step {begun:,}.")


def _timeless(fault: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A fault without addresses of objects, and wherever its folder is."""
    message = str(fault.get("message", "")).replace(str(folder), "FOLDER")
    return {**fault, "message": re.sub(r"0x[0-9a-f]+", "0x", message)}
