"""``polyak push-to-hub``: a trained agent, measured and filmed, goes to the Hugging Face Hub."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass, fields, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym

from polyak.zoo.agent import AgentOptions, SavedAgent
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.hub.card import Measured, write_card
from polyak.zoo.hub.repository import (
    CARD,
    FILM,
    METRICS,
    NORMALIZER,
    RESULTS,
    SETTINGS,
    connect,
    hub_errors,
    repository_id,
    repository_name,
)
from polyak.zoo.links import check_file
from polyak.zoo.literals import parse_pairs
from polyak.zoo.model_files import has_no_statistics
from polyak.zoo.options import option
from polyak.zoo.output import note
from polyak.zoo.registry import check_algorithm, env_name, find_algorithm
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.untrusted import ZooAuthor, given_kwargs

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FORMATS = ("as-is", "sb3")


@dataclass
class PushOptions(AgentOptions):
    """Measure and film a trained agent, and push it with a model card to the Hugging Face Hub."""

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": (
            *("algo", "env", "folder", "exp_id", "load_best", "load_checkpoint", "load_last_checkpoint"),
            *("organization", "repo_name", "private", "format"),
        ),
        "Measurement and film": (
            *("n_timesteps", "eval_episodes", "render", "deterministic", "stochastic", "n_envs", "seed", "verbose"),
            "commit_message",
        ),
        "Environment and machine": ("env_kwargs", "gym_packages", "device", "num_threads"),
        "Files": ("trust", "custom_objects", "pretrained"),
    }

    organization: str = option("", "--organization", "-orga", help="Your user name or organisation on the Hub.")
    repo_name: str = option("", "--repo-name", "-name", help="Repository; <algo>-<env> if not given.")
    commit_message: str = option("Initial commit", "--commit-message", "-m", help="What the commit says.")
    private: bool = option(False, "--private", help="Make the repository, if it is new, a private one.")
    format: str = option("as-is", "--format", help="Model file: as-is, or sb3, for Stable-Baselines3.", choices=FORMATS)
    n_timesteps: int = option(1000, "--n-timesteps", "-n", help="Steps of the film.", at_least=1)
    eval_episodes: int = option(10, "--eval-episodes", help="Episodes of the measurement.", at_least=1)
    render: bool = option(True, "--render/--no-render", help="Record the film.")
    verbose: int = option(1, "--verbose", help="0 says little, 1 each episode.")


def push_to_hub(options: PushOptions) -> str:
    """Push the agent that `options` describe, and return the address of its repository.

    Everything is made in a temporary folder and pushed in one commit. Raises ZooError when the run does not exist,
    a file of it is a link to somewhere else, there is no token, or the Hub refuses.
    """
    check_algorithm(options.algo)
    api = connect()
    _check(options)
    env_id = env_name(options.env)
    finished = options.load_checkpoint < 0 and not options.load_last_checkpoint
    run = RunFolder.find(Path(options.folder), options.algo, env_id, options.exp_id, finished=finished)
    if run.choice:
        note(run.choice)
    options = replace(options, exp_id=options.exp_id or run.number)
    algorithm = find_algorithm(options.algo)
    path = run.model(
        best=options.load_best,
        checkpoint=options.load_checkpoint if options.load_checkpoint >= 0 else None,
        last_checkpoint=options.load_last_checkpoint,
    )
    _check_links(run, path)
    repo_id = repository_id(options.organization, options.algo, env_id, options.repo_name)
    with tempfile.TemporaryDirectory(prefix="polyak-hub-") as temporary:
        folder = Path(temporary)
        with usage_errors(f"Cannot load {path}"):
            model = algorithm.load(path, device="cpu", trust=options.trust)
        _copy_model(options, model, path, run, folder / repository_name(options.algo, env_id))
        _copy_settings(options, run, folder)
        _pack_measurements(run.path, folder / METRICS)
        measured = _measure(options)
        (folder / RESULTS).write_text(json.dumps(measured.results(datetime.now().isoformat())), encoding="utf-8")
        if options.render:
            _film(options, folder / FILM)
        _write_card(options, env_id, measured, int(model.num_timesteps), folder)
        return _upload(options, api, repo_id, folder)


def _check(options: PushOptions) -> None:
    """Refuse options that would make the push fail, before anything is computed."""
    if not options.organization:
        raise ZooError("--organization is empty. Give your user name or organisation on the Hub, e.g. -orga me.")
    if options.deterministic and options.stochastic:
        raise ZooError("--deterministic and --stochastic exclude each other. Give one of them.")
    import huggingface_hub

    if huggingface_hub.get_token() is None:
        raise ZooError(
            "Pushing needs a token of the Hugging Face Hub: log in with `hf auth login`, or set HF_TOKEN to one that "
            "may write."
        )


def _check_links(run: RunFolder, model: Path) -> None:
    """Refuse to push files outside of the run's folder that it links to."""
    settings = [run.settings_folder / name for name in SETTINGS]
    for path in (model, run.normalizer, *settings, *_measurements(run.path)):
        check_file(path, run.path)


def _measurements(run: Path) -> list[Path]:
    return sorted([*run.glob("*monitor.csv"), *run.glob("evaluations.npz")])


def _copy_model(options: PushOptions, model: Any, path: Path, run: RunFolder, target: Path) -> None:
    """Put the model and its statistics into the folder of `target`, as they are or as Stable-Baselines3 reads them."""
    file, statistics = target.with_name(f"{target.name}.zip"), target.parent / NORMALIZER
    if options.format == "as-is":
        shutil.copyfile(path, file)
        if run.normalizer.is_file():
            shutil.copyfile(run.normalizer, statistics)
        return
    try:
        write_sb3(model, file, statistics)
    except (AttributeError, ValueError) as error:
        raise ZooError(f"--format sb3: {error} Push it with --format as-is.") from error
    if run.normalizer.is_file() and not statistics.is_file():  # a run of Stable-Baselines3's
        shutil.copyfile(run.normalizer, statistics)


def _copy_settings(options: PushOptions, run: RunFolder, folder: Path) -> None:
    """Copy the run's settings; the environment's arguments are also written to a file of their own, as in the Zoo."""
    import yaml

    typed, author = parse_pairs(options.env_kwargs, "--env-kwargs"), ZooAuthor.of_file(options.trust)
    given = given_kwargs(run.read_yaml("args.yml"), author, str(run.settings_folder / "args.yml"), typed) | typed
    config, arguments, env_kwargs = SETTINGS
    for name in (config, arguments):
        if (run.settings_folder / name).is_file():
            shutil.copyfile(run.settings_folder / name, folder / name)
    (folder / env_kwargs).write_text(yaml.safe_dump(given), encoding="utf-8")


def _pack_measurements(run: Path, target: Path) -> None:
    """Zip the measurements of training: evaluations.npz and the episodes of each environment."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _measurements(run):
            archive.write(path, path.name)


def _measure(options: PushOptions) -> Measured:
    how = _playing(options, n_timesteps=sys.maxsize, n_episodes=options.eval_episodes, render=False)
    return Measured(tuple(enjoy(how).returns), options.seed, SavedAgent(how).deterministic)


def _film(options: PushOptions, path: Path) -> None:
    enjoy(_playing(options, n_timesteps=options.n_timesteps, n_envs=options.n_envs, record=str(path), verbose=0))


def _playing(options: PushOptions, **how: Any) -> EnjoyOptions:
    """Return the options of `polyak enjoy` that play this agent."""
    same = {item.name: getattr(options, item.name) for item in fields(AgentOptions)}
    return EnjoyOptions(**{**same, "verbose": options.verbose, **how})


def _write_card(options: PushOptions, env_id: str, measured: Measured, steps: int, folder: Path) -> None:
    config, model = folder / SETTINGS[0], f"{repository_name(options.algo, env_id)}.zip"
    name = ["--repo-name", options.repo_name] if options.repo_name else []
    which = ["--algo", options.algo, "--env", env_id, "-orga", options.organization, *name]
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in ("polyak", "torch", "gymnasium"))
    text = write_card(
        options.algo,
        env_id,
        measured,
        file_format="sb3" if has_no_statistics(folder / model) else "polyak",
        which=shlex.join(which),
        steps=steps,
        settings=config.read_text(encoding="utf-8") if config.is_file() else "",
        versions=f"Measured with {versions}.",
    )
    (folder / CARD).write_text(text, encoding="utf-8")


def _upload(options: PushOptions, api: HfApi, repo_id: str, folder: Path) -> str:
    with hub_errors(api, repo_id):
        repository = api.create_repo(repo_id, private=options.private or None, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=options.commit_message)
    print(f"Pushed to {repository}")
    return str(repository)


def write_sb3(model: Any, path: Path, statistics: Path) -> None:
    """Write `model` to `path` and, if it normalises, its statistics to `statistics`.

    Args:
        model: loaded without an environment.
        path: of the model's zip.
        statistics: of the ``VecNormalize`` file.

    Raises:
        ValueError: Stable-Baselines3 has no equal of the model; AttributeError if not of its algorithm.
    """
    from polyak.envs import DummyVecEnv

    model.save_sb3(path)
    model.set_env(DummyVecEnv([lambda: _Spaces(model.observation_space, model.action_space)] * model.n_envs))
    normalizer = model.get_vec_normalize_env()  # the one that the model's file holds
    if normalizer is not None:
        normalizer.save_sb3(statistics)


class _Spaces(gym.Env):
    """An environment's spaces, which the statistics are written with; it is never stepped."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
