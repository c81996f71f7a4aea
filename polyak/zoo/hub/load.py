"""``polyak load-from-hub``: an agent of the Hugging Face Hub becomes a run folder, which every other command reads.

Downloads are treated as data: settings are rewritten as plain YAML, files of measurements are selected by name, and the
model is read later like any other model, without running code.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyak.archive import DAMAGED, check_members
from polyak.zoo.errors import ZooError
from polyak.zoo.hub.repository import METRICS, NORMALIZER, SETTINGS, connect, hub_errors, repository_id, repository_name
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import writable_folder
from polyak.zoo.plain_yaml import read_mapping
from polyak.zoo.registry import algorithm_name, check_algorithm, env_name, find_algorithm
from polyak.zoo.run_folder import RunFolder, file_name, run_numbers
from polyak.zoo.settings import RUN_KEYS, interpret
from polyak.zoo.untrusted import ZooAuthor, given_kwargs, named_env, named_packages

_MEASUREMENT = re.compile(r"evaluations\.npz|(\d+\.)?monitor\.csv")


@dataclass
class LoadOptions(CommandOptions):
    """Download an agent from the Hugging Face Hub into a run folder, logs/<algo>/<env>_<n>/, for `polyak enjoy`."""

    algo: str = option("ppo", "--algo", "-a", help="Algorithm that trained the agent.")
    env: str = option("CartPole-v1", "--env", "-e", help="Environment id.")
    folder: str = option("logs", "--log-folder", "--folder", "-f", help="Where runs are kept.")
    organization: str = option("sb3", "--organization", "-orga", help="User or organisation on the Hub.")
    repo_name: str = option("", "--repo-name", "-name", help="Repository; <algo>-<env> if not given.")
    exp_id: int = option(0, "--exp-id", help="Number of the run to make; 0 is the next free one, -1 no sub-folder.")
    force: bool = option(False, "--force", help="Replace the run if it exists.")
    trust: bool = option(
        False, "--trust", help="Keep settings that name code other than polyak's, SB3's and gymnasium's; none is run."
    )
    verbose: int = option(1, "--verbose", help="0 says nothing, 1 what is done.")


def load_from_hub(options: LoadOptions) -> RunFolder:
    """Download the agent that `options` name and return its run folder.

    The folder appears under its name only when it is complete. Raises ZooError when there is no such repository, no
    model in it, no network, or a run of that number already.
    """
    check_algorithm(options.algo)
    env_id = env_name(options.env)
    repo_id = repository_id(options.organization, options.algo, env_id, options.repo_name)
    run = _target(options, env_id)
    api = connect()
    parent = writable_folder("--folder", options.folder)
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".download-") as temporary:
        downloaded = Path(temporary) / "repository"
        model = f"{repository_name(options.algo, env_id)}.zip"
        if options.verbose > 0:
            print(f"Downloading {api.endpoint}/{repo_id}")
        with hub_errors(api, repo_id):
            wanted = [model, *SETTINGS, NORMALIZER, METRICS]
            api.snapshot_download(repo_id, local_dir=downloaded, allow_patterns=wanted)
            if not (downloaded / model).is_file():
                there = ", ".join(sorted(api.list_repo_files(repo_id))) or "no files"
                raise ZooError(f"{repo_id} holds no {model}, the model of --algo {options.algo}. It holds: {there}.")
        arranged = RunFolder(Path(temporary) / "run", env_id)
        _arrange(downloaded, model, arranged, repo_id, options)
        _install(arranged.path, run.path, alone=options.exp_id >= 0)
    if options.verbose > 0:
        print(f"Saved to {run.path}")
    return run


def _target(options: LoadOptions, env_id: str) -> RunFolder:
    """Return the run folder to make; ZooError if it is there already and is not to be replaced."""
    parent = Path(options.folder) / algorithm_name(options.algo).lower()
    runs = run_numbers(parent, env_id)
    if options.exp_id < 0:
        run = RunFolder(parent, env_id)
        exists = run.final_model.exists()
    else:
        number = options.exp_id or max(runs, default=0) + 1
        run = RunFolder(runs.get(number, parent / f"{file_name(env_id)}_{number}"), env_id)
        exists = run.path.exists()
    if exists and not options.force:
        raise ZooError(f"{run.path} already exists. Give --force to replace it, or --exp-id 0 for a new run.")
    return run


def _arrange(source: Path, model: str, run: RunFolder, repo_id: str, options: LoadOptions) -> None:
    """Arrange the files of a repository as those of a run."""
    run.settings_folder.mkdir(parents=True)
    contents = {name: read_mapping(source / name, f"{repo_id}/{name}") for name in SETTINGS}
    _check_settings(contents, repo_id, options)
    if contents["env_kwargs.yml"]:
        contents["args.yml"]["env_kwargs"] = contents["env_kwargs.yml"]
    for name, content in contents.items():
        if (source / name).is_file():
            run.write_yaml(name, content)
    shutil.move(source / model, run.final_model)
    if (source / NORMALIZER).is_file():
        shutil.move(source / NORMALIZER, run.normalizer)
    if (source / METRICS).is_file():
        _unpack_measurements(source / METRICS, run.path, repo_id)


def _check_settings(contents: dict[str, dict[str, Any]], repo_id: str, options: LoadOptions) -> None:
    """Refuse settings that name code, or give arguments, that those of others may not."""
    author = ZooAuthor.of_file(options.trust)
    config, arguments, env_kwargs = SETTINGS
    run = {key: value for key, value in contents[config].items() if key in RUN_KEYS}
    settings = interpret(find_algorithm(options.algo), options.algo, run, f"{repo_id}/{config}", author)
    settings.check_classes()
    env = named_env(contents[arguments], f"{repo_id}/{arguments}")
    if env not in ("", options.env):  # an environment that the user names is not restricted
        author.check_environment(env, source=f"{repo_id}/{arguments}", here=False)
    named_packages(contents[arguments], author, f"{repo_id}/{arguments}")
    given_kwargs(contents[arguments], author, f"{repo_id}/{arguments}")
    given_kwargs({"env_kwargs": contents[env_kwargs]}, author, f"{repo_id}/{env_kwargs}")


def _unpack_measurements(path: Path, folder: Path, repo_id: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(check_members(archive, f"{repo_id}/{METRICS}", compressed=True)):
                if _MEASUREMENT.fullmatch(name):
                    archive.extract(name, folder)
    except (*DAMAGED, ValueError, RuntimeError, OSError) as error:
        raise ZooError(f"{repo_id}/{METRICS} cannot be unpacked: {error}") from error


def _install(arranged: Path, target: Path, alone: bool) -> None:
    """Move a complete run to its place, replacing existing files: the whole folder if it is the run's `alone`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not alone:
        shutil.copytree(arranged, target, dirs_exist_ok=True)
        return
    if target.exists():
        os.rename(target, arranged.with_name("replaced"))  # deleted with the temporary folder
    os.rename(arranged, target)
