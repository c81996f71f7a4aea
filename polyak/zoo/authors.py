"""Authors of settings that name code, and the packages that each may name.

The user's own words, on the command line, may name any code, and so may Python code that they name there. A file may
have come from others: a YAML file of settings, a run folder, an agent of the Hub. Without ``--trust`` it may name
classes of these packages only: polyak, which answers for Stable-Baselines3, sb3-contrib and RL Zoo; gymnasium; packages
that register environments, by an entry point or an entry in `PROVIDERS`; and those that the user names with
``--gym-packages``. The standard library and builtins are never among them.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from polyak.envs.providers import PROVIDERS
from polyak.zoo.errors import ZooError

OURS = frozenset({"polyak", "gymnasium"})
_PEERS = frozenset({"stable_baselines3", "sb3_contrib", "rl_zoo3"})
_GROUPS = ("gymnasium.envs", "polyak")
_SWITCHES = frozenset({"sitecustomize"})
"""Modules whose import changes the program."""
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Author:
    """The author of a setting.

    Fields: ``is_trusted`` whether any code may be named; ``packages`` those that the user names with --gym-packages.
    """

    is_trusted: bool = False
    packages: tuple[str, ...] = ()

    @classmethod
    def of_file(cls, trust: bool, packages: Iterable[str] = ()) -> Author:
        """The author of a file that may have come from others; `trust`: whether the user trusts it."""
        return cls(trust, tuple(package.partition(".")[0] for package in packages))

    def may_name(self, path: str) -> bool:
        """Whether the module or class ``package.module.Name`` may be imported; nothing is imported to find out."""
        if self.is_trusted:
            return True
        if not _PATH.fullmatch(path) or any(part in _SWITCHES or part.startswith("_") for part in path.split(".")):
            return False
        return self.knows(path.partition(".")[0])

    def knows(self, package: str) -> bool:
        """Whether classes that come from the top package `package` may be used."""
        if self.is_trusted or package in OURS or package in self.packages:
            return True
        return _is_known(package) and not _lies_here(package)


USER = Author(is_trusted=True)
"""The author of the command line and of polyak's own files."""
OTHERS = Author()
"""An author that the user neither named nor trusts."""


def check_module(module: str, author: Author, *, source: str, key: str, value: str) -> None:
    """Refuse to import a module, or to load a ``.py`` file, that a setting names.

    Args:
        module: dotted name, or path of a file.
        author: of the setting.
        source: the file where it stands.
        key: its name there.
        value: the whole value, such as ``module:EnvId``.

    Raises:
        ZooError: the author may not name it.
    """
    if author.is_trusted or (not module.endswith(".py") and author.may_name(module)):
        return
    way_out = f"name it yourself: --{key} {value}" if key in ("env", "algo") else f"--gym-packages {value}"
    raise ZooError(
        f"{source}: {key} names {value!r}, code that is not run unasked: a file may have come from others. If you "
        f"trust the code, {way_out}; or add --trust, if you trust all that the file names."
    )


@cache
def _registered() -> frozenset[str]:
    """Top packages with an entry point for environments."""
    return frozenset(point.module.partition(".")[0] for group in _GROUPS for point in entry_points(group=group))


def _is_known(package: str) -> bool:
    if package in sys.stdlib_module_names:
        return False
    return package in _PEERS or package in {one.module for one in PROVIDERS} or package in _registered()


def _lies_here(package: str) -> bool:
    """Whether a package would come from the current folder, where an archive may have put it beside its logs."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    places = [] if spec is None else [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    here, installed = Path.cwd().resolve(), Path(sys.prefix).resolve()
    found = [Path(place).resolve() for place in places]
    return any(place.is_relative_to(here) and not place.is_relative_to(installed) for place in found)
