"""Reading and writing datasets for commands, with errors in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.registry import STANDARD_ENV, Environment, find_algorithm, find_env, nameless
from polyak.zoo.untrusted import ZooAuthor

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

    from polyak.experience import Dataset
    from polyak.zoo.settings import Settings


def load(
    path: str, *, format: str = "", env: str = "", gym_packages: Sequence[str] = (), trust: bool = False
) -> Dataset:
    """Read a dataset, with the spaces of `env` if one is named; a ZooError names a fault in it, and its place."""
    from polyak.experience import Dataset

    if not path:
        raise ZooError("Which dataset? Give its file.")
    spec = find_env(env, gym_packages).spec if env else None
    with usage_errors("Cannot read the dataset"):
        dataset = Dataset.load(path, format=format or None, trust=trust)
        return dataset if spec is None else fitted(dataset, spec)


def dataset_for(path: str, algorithm: type[Any], name: str, trust: bool = False) -> Dataset:
    """Read the dataset of --dataset, for an algorithm called `name`; ZooError if that cannot learn from it."""
    from polyak.algorithms import REGISTRY
    from polyak.fields.dataset import LearnsFromData

    if not issubclass(algorithm, LearnsFromData):
        able = [known for known in REGISTRY if issubclass(find_algorithm(known), LearnsFromData)]
        raise ZooError(f"--dataset: {name} learns by acting only. From a dataset learn {', '.join(able)}.")
    return load(path, trust=trust)


def environment_of(options: Any, dataset: Dataset | None) -> Environment:
    """The environment that the user names, or that a dataset names, which may be any that is registered.

    `options` are those of `train` or `tune`. Raises ZooError if there is no such environment, or it may not be named.
    """
    if options.env or dataset is None:
        return find_env(options.env or STANDARD_ENV, options.gym_packages)
    if not dataset.env_id:
        return nameless(Path(options.dataset).stem)
    author = ZooAuthor.of_file(options.trust, options.gym_packages)
    return find_env(dataset.env_id, options.gym_packages, author, f"--dataset {options.dataset}")


def check_without_envs(settings: Settings) -> None:
    """Raise ZooError where settings wrap environments, for an agent that learns from a dataset alone."""
    if settings.normalize is not None:
        raise ZooError(
            f"normalize of {settings.source} is for what acts: with --dataset, algorithms that are made to learn from "
            "one normalise by themselves. Give -params normalize:False."
        )


def fitted(dataset: Dataset, spec: EnvSpec) -> Dataset:
    """The dataset with the spaces of the environment that gymnasium makes of `spec`."""
    from polyak.envs import make_env

    env = make_env(spec)
    try:
        return dataset.for_env(env)
    finally:
        env.close()


def save(dataset: Dataset, path: str, flag: str, format: str = "") -> Path:
    """Write a dataset and return where it is; ZooError if it cannot be written there, or not in that format."""
    if not path:
        raise ZooError(f"Where to? Give {flag}.")
    with usage_errors(f"{flag} {path!r}"):
        return dataset.save(path, format=format or None)
