"""Reading and writing datasets for commands, with errors in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.registry import find_env

if TYPE_CHECKING:
    from polyak.data import Dataset


def load(
    path: str, *, format: str = "", env: str = "", gym_packages: Sequence[str] = (), trust: bool = False
) -> Dataset:
    """Read a dataset, with the spaces of `env` if one is named; ZooError saying what is wrong with it, and where."""
    from polyak.data import Dataset

    if not path:
        raise ZooError("Which dataset? Give its file.")
    spec = find_env(env, gym_packages).spec if env else None
    with usage_errors("Cannot read the dataset"):
        dataset = Dataset.load(path, format=format or None, trust=trust)
        return dataset if spec is None else fitted(dataset, spec)


def fitted(dataset: Dataset, spec: object) -> Dataset:
    """The dataset with the spaces of the environment that gymnasium makes of `spec`."""
    from polyak.envs import make_env

    env = make_env(spec)  # type: ignore[arg-type]
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
