"""Checks of names and values that come with a file: everything that a file of others may contain is decided here.

Allowed are environments registered under exactly the given id, classes of known packages, plain words, and numbers
within limits. Anything else is refused before anything is imported, called or built, and nothing is imported to decide.
``trust=True`` lifts all checks.
"""

from __future__ import annotations

import importlib.util
import math
import re
import reprlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, cast

import gymnasium as gym

from polyak.envs.registration import PROVIDERS, is_without_velocities
from polyak.formats import CHANGES_THE_PROGRAM, NAMED_IN_FILES
from polyak.suggestions import did_you_mean

MOST = 1_000
"""Largest number among arguments of environments and wrappers, and of critics, quantiles and the like."""
LEAST = 1e-6
"""Smallest number but 0 among arguments of environments, which may divide by it."""
MOST_AT_ONCE = 1_000_000
"""Largest batch, rollout or search, and largest hyper-parameter that none of the other limits is for."""
MOST_COUNTED = 10**15
"""Largest number of those that only count, such as steps, episodes and intervals, and of rows, which fit the memory."""
MOST_REPEATED = 10_000
"""Most passes over a batch and gradient steps at a time."""
MOST_PROCESSES = 64
"""Most runners, learners, workers and parts of a replay buffer."""
LONGEST = 1_000
"""Most items of a list, and characters of a word."""
MOST_VALUES = 10_000
"""Largest number of values and characters in one setting; repeated references count each time."""
MOST_TOGETHER = 10_000_000
"""Most environments, times stacked frames, times the numbers that wrappers are given: the lengths of images."""

_OURS = (*NAMED_IN_FILES, "gymnasium.wrappers.", "torch.nn.", "torch.optim.")
"""Modules that may be imported for a class that any file names, and those beneath them."""
_GROUPS = ("gymnasium.envs", "polyak")
_PLAIN_PATH = re.compile(r"[^\W\d_]\w*(\.[^\W\d_]\w*)*")
_PLAIN_ID = re.compile(r"([\w-]+/)?[\w.-]+")
_PLAIN_WORD = re.compile(r"[\w +-]*|1/n|(auto|lin)_\d*\.\d*(e[+-]?\d+)?")
_DEVICE = re.compile(r"(auto|cpu|cuda|mps)(:\d+)?")
_TAKES_A_PATH = re.compile(r"(.*_)?(file|filename|files|path|paths|folder|dir|directory|tensorboard_log)")

_OF_PROCESSES = re.compile(r"(n|num)_(\w+_)?(runners|learners|workers|shards)|\w+_num_env_runners")
_REPEATED = re.compile(r"gradient_steps|(n|num)_(epochs|updates)")
_AT_ONCE = re.compile(r"n_(steps|rollouts|candidates|games)")
_COUNTED = re.compile(
    r".*(steps|freq|interval|delay|seed|starts|episodes?|_evals|n_calls).*"
    r"|(buffer|experience|imagined)_size|capacity|max_episode_length"
)
_LENGTHS = re.compile(r".*(shape|size|dims?|resolution)")
_COUNTED_BY_WRAPPERS = re.compile(r"max_episode_steps|seed")

Kind = Literal["environment", "hyperparameter"]
"""The owner of an argument: an environment or a wrapper, which may come from any package; or an algorithm and its
parts."""


class UntrustedError(ValueError):
    """A file needs something that could run code or take much, and the caller has not passed ``trust=True``."""


def is_plain_id(text: str) -> bool:
    """Whether a text has the form of an environment's id, without a module in front: ``ALE/Pong-v5``, or nothing."""
    return not text or bool(_PLAIN_ID.fullmatch(text))


def is_ours(module: str) -> bool:
    """Whether a module may be imported because any file names a class in it."""
    return (
        bool(_PLAIN_PATH.fullmatch(module))
        and f"{module}.".startswith(_OURS)
        and not f"{module}.".startswith(CHANGES_THE_PROGRAM)
    )


@dataclass(frozen=True)
class Author:
    """The author of a name or a value: the user, or a file that may have come from others.

    Fields: ``is_trusted``: whether everything is allowed; ``packages``: modules that the user has named; code in them
    may be named too.
    """

    is_trusted: bool = False
    packages: tuple[str, ...] = ()

    error: ClassVar[type[Exception]] = UntrustedError
    way_out: ClassVar[str] = "Give it yourself, as an argument; or pass trust=True if you trust the file."
    knows_installed: ClassVar[bool] = False
    """Whether classes of installed packages that register environments may be named."""

    # -- names ---------------------------------------------------------------------------------------------------------

    def names(self, module: str) -> bool:
        """Whether the user has named a module, or the package that it is in."""
        return bool(_PLAIN_PATH.fullmatch(module)) and not {module, module.partition(".")[0]}.isdisjoint(self.packages)

    def may_import(self, module: str) -> bool:
        """Whether a module may be imported for a class in it."""
        if self.is_trusted or is_ours(module) or self.names(module):
            return True
        known = self.knows_installed and registers_environments(module.partition(".")[0])
        return known and bool(_PLAIN_PATH.fullmatch(module))

    def may_hold(self, found: type) -> bool:
        """Whether a class found in a module may be used: one of that module's own package, or of another known one."""
        module = found.__module__
        return self.is_trusted or self.may_import(module) or module.partition(".")[0] in ("polyak", "gymnasium")

    def check_environment(self, text: str, *, source: str, key: str = "env", here: bool = True) -> None:
        """Refuse an environment that is not registered, after the user's packages were imported.

        Args:
            text: an id, which may have a prefix: a module of the user's packages, or the one that registers it.
            source: the file, for messages.
            key: its name in the file.
            here: whether it is about to be made, so that it must be registered.

        Raises:
            UntrustedError: it names code, or no registered environment.
        """
        module, colon, name = text.rpartition(":")
        provider = next((one.module for one in PROVIDERS if one.ids.fullmatch(name)), "")
        provided = registers_environments(provider)
        is_code = colon and not self.names(module) and not (provided and module == provider)
        is_known = name in gym.registry or is_without_velocities(name) or provided
        if self.is_trusted or (not is_code and (is_known or not here)):
            return
        if is_code or not is_plain_id(name):
            self._refuse_code(text, source, key)
        raise self.error(
            f"{source}: {key} is {text!r:.200}, which is no registered environment.{did_you_mean(name, gym.registry)} "
            f"{self.way_out}"
        )

    def check_algorithm(self, text: str, *, source: str, key: str = "algo") -> None:
        """Refuse an algorithm, ``module:NAME`` or ``file.py:NAME``, that is not of the user's packages."""
        if not (self.is_trusted or self.names(text.rpartition(":")[0])):
            self._refuse_code(text, source, key)

    def check_packages(self, packages: Iterable[str], *, source: str, key: str) -> None:
        """Refuse to import packages that the user has not named and that are not known to register environments."""
        for package in packages:
            if not (self.is_trusted or self.names(package) or registers_environments(package)):
                self._refuse_code(package, source, key)

    def _refuse_code(self, text: str, source: str, key: str) -> NoReturn:
        raise self.error(
            f"{source}: {key} names {text!r:.200}, code that is not run unasked: a file may have come from others. "
            f"{self.way_out}"
        )

    # -- values --------------------------------------------------------------------------------------------------------

    def check_values(
        self, value: Any, *, source: str, key: str, name: str = "", kind: Kind = "environment", sizes: bool = False
    ) -> None:
        """Refuse a value that is not plain, or too large, at any depth.

        Plain values are truth values, None, numbers, words of letters and digits, registered ids, classes, and lists
        and dicts of these.

        Args:
            value: the value in the file.
            source: the file, for messages.
            key: the setting, such as ``env_kwargs``.
            name: name of the argument in the setting.
            kind: the kind of its owner.
            sizes: check sizes only, and accept values that are not plain.

        Raises:
            UntrustedError: something in it is not allowed; the message has file, key, argument and value.
        """
        if self.is_trusted:
            return
        count = 0
        for called, part in _parts(name or key, value):
            count += 1 + (len(part) if isinstance(part, str) else 0)
            reason = _too_much(part, called, kind) or ("" if sizes else _not_plain(part, called))
            if count > MOST_VALUES:
                called, part, reason = name or key, value, f"has more than {MOST_VALUES:,} values and characters"
            if reason:
                where = key if called == key else f"{key}: {called}"
                raise self.error(
                    f"{source}: {where}={_shown(part)} {reason}. A file may have come from others. {self.way_out}"
                )


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value and all that it holds, the names in dicts too, each with the name that it has in the innermost dict."""
    yield name, value
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from _parts(name, inner)
            yield from _parts(str(inner), item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _parts(name, item)


def weight(value: Any) -> int:
    """Number of values and characters in a value."""
    return sum(1 + (len(part) if isinstance(part, str) else 0) for _, part in _parts("", value))


def numbers_in(value: Any) -> list[int | float]:
    """The numbers above 1 in a value that are no counts: lengths and repetitions, which multiply."""
    parts = ((name, part) for name, part in _parts("", value) if isinstance(part, int | float) and part > 1)
    return [part for name, part in parts if not _COUNTED_BY_WRAPPERS.fullmatch(name)]


def most(name: str, kind: Kind = "hyperparameter") -> int:
    """The largest number that a file may give for an argument."""
    if _OF_PROCESSES.fullmatch(name):
        return MOST_PROCESSES
    if kind == "environment":
        return MOST_COUNTED if _COUNTED_BY_WRAPPERS.fullmatch(name) else MOST
    if _REPEATED.fullmatch(name):
        return MOST_REPEATED
    if _AT_ONCE.fullmatch(name):
        return MOST_AT_ONCE
    if _COUNTED.fullmatch(name):
        return MOST_COUNTED
    return MOST if name.startswith(("n_", "num_")) else MOST_AT_ONCE


def _too_much(value: Any, name: str, kind: Kind) -> str:
    """Why one value is too large; empty if it is not."""
    if isinstance(value, str | list | tuple | dict | set) and len(value) > LONGEST:
        return f"has more than {LONGEST:,} {'characters' if isinstance(value, str) else 'items'}"
    if isinstance(value, list | tuple) and _LENGTHS.fullmatch(name) and math.prod(numbers_in(value)) > MOST_TOGETHER:
        return f"is of more than {MOST_TOGETHER:,} numbers"
    if isinstance(value, bool) or not isinstance(value, Real):
        return ""
    limit, size = most(name, kind), cast("float", abs(value))
    if kind == "hyperparameter" and not isinstance(value, Integral):  # a rate, a weight: one that counts is a fault
        return f"is a number beyond {MOST_COUNTED:,}" if MOST_COUNTED < size < float("inf") else ""
    if not size <= limit:
        return f"is a number beyond {limit:,}"
    return f"is a number below {LEAST}" if kind == "environment" and 0 < size < LEAST else ""


def _not_plain(value: Any, name: str) -> str:
    """Why one value is none that a file may give; empty if it is one."""
    if value is None or isinstance(value, bool):
        return ""
    if _TAKES_A_PATH.fullmatch(name):
        return "is taken for a file or a folder"
    if isinstance(value, str):
        plain = _PLAIN_WORD.fullmatch(value) or value in gym.registry or (name == "device" and _DEVICE.fullmatch(value))
        return "" if plain else "is neither a plain word (letters, digits, - and _) nor a registered environment"
    return "" if isinstance(value, int | float | dict | list | tuple | set | type) else "is no plain value"


def _shown(value: Any) -> str:
    return f"{value!r:.200}" if isinstance(value, str | Real) else reprlib.repr(value)


# -- packages ----------------------------------------------------------------------------------------------------------


def registers_environments(package: str) -> bool:
    """Whether a top-level package is known to register environments, and is not in the current folder.

    An archive may have put it there, beside its logs. The standard library is excluded.
    """
    known = package in {one.module for one in PROVIDERS} or package in _registered()
    return known and package not in sys.stdlib_module_names and not _lies_here(package)


@cache
def _registered() -> frozenset[str]:
    """Top packages with an entry point for environments."""
    return frozenset(point.module.partition(".")[0] for group in _GROUPS for point in entry_points(group=group))


def _lies_here(package: str) -> bool:
    """Whether a package would come from the current folder, now or once that is searched too."""
    here, prefix = Path.cwd().resolve(), Path(sys.prefix).resolve()
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return any(path.name.partition(".")[0] == package for path in here.iterdir())
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    found = [Path(place).resolve() for place in places]
    return any(place.is_relative_to(here) and not place.is_relative_to(prefix) for place in found)
