"""Environments that files name: a run's args.yml, and datasets. Both may have come from others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from polyak.zoo.authors import Author, check_module
from polyak.zoo.errors import ZooError
from polyak.zoo.plain_arguments import check_arguments

_ID = re.compile(r"([\w-]+/)?[\w.-]+")
"""An id as gymnasium registers it, without a module to import."""


def named_env(arguments: dict[str, Any], author: Author, source: str) -> str:
    """Return how the training run was given its environment; empty if the file does not say.

    Args:
        arguments: content of args.yml.
        author: of the setting.
        source: its path, for messages.

    Raises:
        ZooError: it is ``file.py:NAME``, or ``module:EnvId`` of a module that the author may not name.
    """
    env = arguments.get("env") or ""
    if not isinstance(env, str):
        raise ZooError(f"{source}: env must be the name of an environment, got {env!r:.200}.")
    module, _, name = env.rpartition(":")
    if module or env.endswith(".py"):
        check_module(module or env, author, source=source, key="env", value=env)
    if env and not author.is_trusted and not _ID.fullmatch(name):
        raise ZooError(f"{source}: env must be the id of a registered environment, got {env!r:.200}.")
    return env


def recorded_env(dataset: Any, trust: bool, packages: Iterable[str], source: str) -> str:
    """Return the environment that a dataset says it was recorded in; empty if it does not say.

    Raises:
        ZooError: it is no registered id, and the user does not `trust` the file: as `named_env` does.
    """
    return named_env({"env": dataset.env_id}, Author.of_file(trust, packages), source)


def named_packages(arguments: dict[str, Any], author: Author, source: str) -> list[str]:
    """Return the packages that register environments; raises ZooError for those that `author` may not name."""
    packages = arguments.get("gym_packages") or []
    if not isinstance(packages, list) or not all(isinstance(package, str) for package in packages):
        raise ZooError(f"{source}: gym_packages must be a list of packages, got {packages!r:.200}.")
    for package in packages:
        check_module(package, author, source=source, key="gym_packages", value=package)
    return packages


def given_kwargs(arguments: dict[str, Any], author: Author, source: str, typed: Collection[str] = ()) -> dict[str, Any]:
    """Return what the environment's constructor was given, without what the user has `typed`, which replaces it.

    Raises ZooError for what `author` may not give.
    """
    kwargs = arguments.get("env_kwargs") or {}
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise ZooError(f"{source}: env_kwargs must map names to values, got {kwargs!r:.200}.")
    kwargs = {name: value for name, value in kwargs.items() if name not in typed}
    check_arguments(kwargs, author, source=source, key="env_kwargs")
    return kwargs
