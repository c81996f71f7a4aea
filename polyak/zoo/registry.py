"""Finding an algorithm and an environment by name, or saying which names there are."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from polyak.zoo.errors import ZooError, did_you_mean


def algorithm_names() -> list[str]:
    """Return the names that ``--algo`` takes, in the registry's order."""
    from polyak.algorithms import REGISTRY

    return list(REGISTRY)


def find_algorithm(name: str) -> type[Any]:
    """Return the algorithm class registered as `name` (upper and lower case are alike); ZooError if there is none."""
    from polyak.algorithms import get

    names = algorithm_names()
    if name.lower() not in names:
        raise ZooError(f"Unknown algorithm --algo {name!r}.{did_you_mean(name, names)} Available: {', '.join(names)}.")
    return get(name)


def summary(algorithm: type[Any]) -> str:
    """Return the first sentence of the algorithm's docstring (its file's docstring if the class has none)."""
    text = algorithm.__dict__.get("__doc__") or inspect.getdoc(inspect.getmodule(algorithm)) or ""
    return text.strip().split("\n")[0].strip()


def parameter_names(algorithm: type[Any]) -> list[str]:
    """Return the names of the constructor's parameters, without ``self`` and ``env``."""
    return [name for name in inspect.signature(algorithm).parameters if name not in ("self", "env")]


def find_env(env_id: str, packages: Iterable[str] = ()) -> str:
    """Return `env_id` once gymnasium knows it, importing `packages` and the usual providers first.

    ``module:EnvId`` imports the module, as `gymnasium.make` does. Raises ZooError naming the closest ids otherwise.
    """
    import gymnasium

    module, colon, bare = env_id.rpartition(":")
    for package in [*packages, *([module] if colon else [])]:
        _import_package(package)
    if is_atari_id(bare):
        register_atari()
    if bare in gymnasium.registry:
        return bare
    try:
        gymnasium.spec(bare)
    except gymnasium.error.Error as error:
        raise ZooError(
            f"Unknown environment --env {env_id!r}.{did_you_mean(bare, gymnasium.registry)} If a package of yours "
            "registers it, name that package with --gym-packages."
        ) from error
    return bare


def _import_package(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ZooError(f"Cannot import the package {package!r} that should register environments: {error}.") from error


def is_atari_id(env_id: str) -> bool:
    """Say whether an environment id is one of the Arcade Learning Environment's."""
    return env_id.startswith("ALE/") or "NoFrameskip-v" in env_id


def register_atari() -> None:
    """Register the Atari games with gymnasium; ZooError naming the extra if ale-py is missing."""
    import gymnasium

    try:
        import ale_py
    except ImportError as error:
        raise ZooError("Atari games need ale-py: pip install 'polyak[atari]'.") from error
    gymnasium.register_envs(ale_py)
