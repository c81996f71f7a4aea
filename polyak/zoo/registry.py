"""Finding an algorithm and an environment by name, or saying which names there are."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyak.envs.registration import provide
from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.own_code import find_env_file, import_module, is_own_module, load_algorithm
from polyak.zoo.untrusted import USER, ZooAuthor

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec


STANDARD_ENV = "CartPole-v1"
"""The environment in which commands train by default."""


def algorithm_names() -> list[str]:
    """Return the names that ``--algo`` takes: polyak's, those registered by others, those of installed packages."""
    from polyak.algorithms import names

    return names()


#: The peers' names of algorithms that have another here; both work, and name the run's folder as they were given.
ALIASES = {"ppo_lstm": "recurrent_ppo", "ppo_mask": "maskable_ppo"}


def canonical_name(name: str) -> str:
    """Return the registry's name of an algorithm: ``PPO_LSTM`` -> ``recurrent_ppo``."""
    return ALIASES.get(name.lower(), name.lower())


def check_algorithm(name: str) -> None:
    """Raise ZooError, naming the closest algorithms, if `name` is in no registry; imports none of them."""
    if ":" in name or name.endswith(".py") or is_registered(name):
        return
    if name.lower() == "her":
        raise ZooError(
            "--algo 'her' is no algorithm but a kind of replay buffer: use --algo tqc (or sac, td3, ddpg, dqn) with "
            "replay_buffer_class: HerReplayBuffer among the settings, as those tuned for goal environments have it."
        )
    known = [*algorithm_names(), *ALIASES]
    raise ZooError(
        f"Unknown algorithm --algo {name!r}.{did_you_mean(name, known)} Available: {', '.join(known)}; one of your own "
        "is given as file.py:NAME."
    )


def find_algorithm(name: str) -> type[Any]:
    """Return the algorithm class registered as `name` (upper and lower case are alike), or the user's own.

    The user's own is written ``file.py:NAME`` or ``module:NAME``. Raises ZooError if there is none, or if the installed
    package that offers it is broken.
    """
    from polyak.algorithms import get

    check_algorithm(name)
    if not is_registered(name):
        return load_algorithm(name)
    try:
        return get(canonical_name(name))
    except (ImportError, ValueError) as error:
        raise ZooError(f"--algo {name!r}: {error}") from error


def is_registered(name: str) -> bool:
    """Return whether `name` is in the registry, or is a peer's name of a registered algorithm."""
    return canonical_name(name) in algorithm_names()


def algorithm_name(text: str) -> str:
    """Return the name of an algorithm's runs: ``my_file.py:MyPPO`` -> ``MyPPO``; ``ppo`` stays."""
    return text.rpartition(":")[2]


def registered_name(algorithm: type[Any]) -> str | None:
    """Return polyak's name of an algorithm, or of the nearest of polyak's that it derives from; None without one."""
    from polyak.algorithms import REGISTRY, registered_as

    names = map(registered_as, algorithm.__mro__)
    return next((name for name in names if name in REGISTRY), None)


def summary(algorithm: type[Any]) -> str:
    """Return the first sentence of the algorithm's docstring (its file's docstring if the class has none)."""
    text = algorithm.__doc__ or inspect.getdoc(inspect.getmodule(algorithm)) or ""
    return text.strip().split("\n")[0].strip()


def parameter_names(algorithm: type[Any]) -> list[str]:
    """Return the names of the constructor's parameters, without ``self`` and ``env``.

    Where it hands further ones (``**kwargs``) to the class that it derives from, those are among them.
    """
    names: dict[str, None] = {}
    for kind in algorithm.__mro__:
        parameters = inspect.signature(kind).parameters.values()
        various = [parameter for parameter in parameters if parameter.kind in (_MORE_WORDS, _MORE_VALUES)]
        names |= dict.fromkeys(parameter.name for parameter in parameters if parameter not in various)
        if not any(parameter.kind is _MORE_WORDS for parameter in various):
            break
    return [name for name in names if name not in ("self", "env")]


_MORE_WORDS, _MORE_VALUES = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


@dataclass(frozen=True)
class Environment:
    """An environment that the user named.

    Fields: ``name`` is its name in folders and settings; ``spec`` is made by gymnasium, in worker processes too;
    ``source`` is the text that finds it again; ``is_own`` is whether it is the user's own code.
    """

    name: str
    spec: EnvSpec
    source: str
    is_own: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it can be made; the environment of a dataset need not be."""
        return bool(self.source)


def nameless(name: str) -> Environment:
    """Return a placeholder for the environment of data without an environment's name."""
    from gymnasium.envs.registration import EnvSpec

    return Environment(name, EnvSpec("unknown-v0"), "")


def env_name(text: str) -> str:
    """Return the name of an environment's runs: ``my_env.py:MyEnv`` -> ``MyEnv``, ``module:X-v0`` -> ``X-v0``."""
    return text.rpartition(":")[2]


def find_env(text: str, packages: Iterable[str] = (), author: ZooAuthor = USER, source: str = "") -> Environment:
    """Find the environment that `text` names, importing `packages` and the usual providers first.

    `text` is a registered id; ``module:EnvId``, which imports the module as `gymnasium.make` does; or ``file.py:Name``,
    a class or function in a file. If it comes from a file, `source`, the file's `author` may name registered ids only.

    Raises ZooError naming the closest ids when there is none, and for code that the author may not name.
    """
    import gymnasium

    imported = [import_module(package) for package in packages]
    author.check_environment(text, source=source)
    module, _, name = text.rpartition(":")
    if text.endswith(".py"):
        raise ZooError(f"--env {text!r} names a file only. Add the class or function that makes it: {text}:NAME.")
    if module.endswith(".py"):
        file = find_env_file(text)
        return Environment(name, gymnasium.envs.registration.EnvSpec(name, entry_point=file), file.source, is_own=True)
    imported += [import_module(module)] if module else []
    provide(name)
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        hint = did_you_mean(name, gymnasium.registry)
        raise ZooError(
            f"Unknown environment --env {text!r}.{hint} One of your own is given as file.py:NAME, as module:EnvId, "
            "or by the module that registers it in --gym-packages."
        ) from error
    return Environment(name, spec, text, is_own=any(map(is_own_module, imported)))


def check_names(algo: str, env: str = "", packages: Iterable[str] = ()) -> None:
    """Raise ZooError if there is no such algorithm or environment, without importing PyTorch.

    An empty `env` is not checked. `packages` are imported first, as by `find_env`.
    """
    check_algorithm(algo)
    if env:
        find_env(env, packages)


def is_atari_id(env_id: str) -> bool:
    """Return whether an environment id belongs to the Arcade Learning Environment."""
    return env_id.startswith("ALE/") or "NoFrameskip-v" in env_id
