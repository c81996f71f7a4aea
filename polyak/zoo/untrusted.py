"""Checks of names and values in settings, run folders and agents of the Hub, which may have come from others.

The rules are in :mod:`polyak.envs.reading.untrusted`. The user may name any code on the command line, and so may Python
code named there; ``--trust`` lets a file do so too.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from polyak.envs.reading import untrusted
from polyak.zoo.errors import ZooError
from polyak.zoo.literals import import_name
from polyak.zoo.peer_names import our_path


@dataclass(frozen=True)
class ZooAuthor(untrusted.Author):
    """The author of a setting."""

    error: ClassVar[type[Exception]] = ZooError
    way_out: ClassVar[str] = (
        "Give it yourself on the command line (--env, --algo, --gym-packages, --env-kwargs, -params), or add --trust "
        "if you trust the file."
    )
    knows_installed: ClassVar[bool] = True

    @classmethod
    def of_file(cls, trust: bool, packages: Iterable[str] = ()) -> ZooAuthor:
        """The author of a file that may have come from others; `trust`: whether the user trusts it."""
        return cls(trust, tuple(package.partition(".")[0] for package in packages))


USER = ZooAuthor(is_trusted=True)
"""The author of the command line and of polyak's own files."""
OTHERS = ZooAuthor()
"""An author that the user neither named nor trusts."""

#: Settings that name classes -> the kind of class, and the result of calling it where the author is trusted.
KINDS: dict[str, tuple[str, str]] = {
    "env_wrapper": ("gymnasium.Wrapper", "gymnasium.Env"),
    "vec_env_wrapper": ("polyak.envs.VecEnvWrapper", "polyak.envs.VecEnv"),
    "callback": ("polyak.callbacks.callback.BaseCallback", "polyak.callbacks.callback.BaseCallback"),
    "policy": ("polyak.nn.policies.base.Policy", "polyak.nn.policies.base.Policy"),
}


def kind_of(key: str) -> untrusted.Kind:
    """Return the kind of object whose arguments a setting holds."""
    return "environment" if key.startswith(("env_", "vec_env_")) else "hyperparameter"


@dataclass(frozen=True)
class NamedClass:
    """A class that a setting names, and the keyword arguments to give it; can be pickled for worker processes.

    It is checked before it is imported, and again before it is built. Fields: ``path`` as it was written; ``key`` one
    of `KINDS`; ``source`` the file where it stands; ``author`` its author.
    """

    path: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    key: str = "env_wrapper"
    source: str = "settings"
    author: ZooAuthor = OTHERS

    def check(self) -> None:
        """Refuse, importing nothing, a name or arguments that the author may not write; raises ZooError."""
        if not self.author.may_import(our_path(self.path).rpartition(".")[0]):
            package = self.path.partition(".")[0]
            raise ZooError(
                f"{self._where()}, code that is not run unasked: a file may have come from others. Its names must be "
                "of what polyak, its peers and gymnasium offer, or a package that registers environments. If you trust "
                f"the code, add --gym-packages {package}; or --trust, if you trust all that the file names."
            )
        key, kind = f"{self.key} {self.path}", kind_of(self.key)
        self.author.check_values(self.kwargs, source=self.source, key=key, kind=kind)

    @property
    def is_ours(self) -> bool:
        """Whether it is polyak's or gymnasium's, and so must be there."""
        return untrusted.is_ours(our_path(self.path).rpartition(".")[0])

    def find(self) -> Any:
        """Import the class and return it.

        Where the author is trusted it may also be a function that makes something of the kind.

        Raises:
            ZooError: it may not be named, is not there, or is not of the kind.
        """
        self.check()
        try:
            found = import_name(our_path(self.path))
        except ZooError as error:
            raise ZooError(f"{self._where()}. {error}") from error
        kind = self._kind()
        if isinstance(found, type):
            if issubclass(found, kind) and self.author.may_hold(found):
                return found
        elif self.author.is_trusted and callable(found):
            return found
        way_out = "" if self.author.is_trusted else " Only --trust, for files that you trust, lets functions make one."
        raise ZooError(f"{self._where()}, which is not a subclass of {kind.__name__}.{way_out}")

    def __call__(self, *args: Any) -> Any:
        """Import the class and build it on `args`; raises ZooError as `find` does, or if it cannot be built."""
        found = self.find()
        try:
            made = found(*args, **self.kwargs)
        except ZooError:
            raise
        except Exception as error:
            given = f" with {self.kwargs!r:.300}" if self.kwargs else ""
            raise ZooError(f"{self._where()}, which cannot be made{given}: {type(error).__name__}: {error}") from error
        if not isinstance(made, self._kind()):
            raise ZooError(f"{self._where()}, which made {made!r:.100} and no {self._kind().__name__}.")
        return made

    def _kind(self) -> type:
        of_classes, of_results = KINDS[self.key]
        module, _, name = (of_results if self.author.is_trusted else of_classes).rpartition(".")
        kind: type = getattr(importlib.import_module(module), name)
        return kind

    def _where(self) -> str:
        return f"{self.source}: {self.key} names {self.path!r:.200}"


# -- args.yml ----------------------------------------------------------------------------------------------------------


def named_env(arguments: dict[str, Any], source: str) -> str:
    """Return the environment as it was given to the training run, for `find_env`; empty if it is unknown."""
    env = arguments.get("env") or ""
    if not isinstance(env, str):
        raise ZooError(f"{source}: env must be the name of an environment, got {env!r:.200}.")
    return env


def named_packages(arguments: dict[str, Any], author: ZooAuthor, source: str) -> list[str]:
    """Return the packages that register environments; raises ZooError for those that `author` may not name."""
    packages = arguments.get("gym_packages") or []
    if not isinstance(packages, list) or not all(isinstance(package, str) for package in packages):
        raise ZooError(f"{source}: gym_packages must be a list of packages, got {packages!r:.200}.")
    author.check_packages(packages, source=source, key="gym_packages")
    return packages


def named_algorithm(arguments: dict[str, Any], name: str, author: ZooAuthor, source: str) -> str:
    """Return how the training run was given its algorithm, if that is the user's own and is called `name`; else `name`.

    Raises ZooError for code that `author` may not name.
    """
    algo = arguments.get("algo")
    if not isinstance(algo, str) or ":" not in algo or algo.rpartition(":")[2].lower() != name.lower():
        return name
    author.check_algorithm(algo, source=source)
    return algo


def given_kwargs(
    arguments: dict[str, Any], author: ZooAuthor, source: str, typed: Collection[str] = ()
) -> dict[str, Any]:
    """Return the arguments of the environment's constructor, without those that the user has `typed`, which replace
    them.

    Raises ZooError for values that `author` may not use.
    """
    kwargs = arguments.get("env_kwargs") or {}
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise ZooError(f"{source}: env_kwargs must map names to values, got {kwargs!r:.200}.")
    kwargs = {name: value for name, value in kwargs.items() if name not in typed}
    author.check_values(kwargs, source=source, key="env_kwargs")
    return kwargs
