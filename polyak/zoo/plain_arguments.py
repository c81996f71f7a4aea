"""Arguments of named classes in untrusted files: numbers and words, never files, folders, code or huge sizes.

An argument is data to the class that takes it, but some classes write to a path or import a name that they are given.
So in a file that may have come from others arguments are numbers and plain words: see `check_arguments`.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from polyak.zoo.authors import Author
from polyak.zoo.errors import ZooError

MOST = 1_000
"""Largest whole number among arguments of wrappers, environments and callbacks: frames to stack, pixels, repeats."""
MOST_COUNTED = 10**15
"""Largest of those that only count: steps, episodes, intervals, seeds, lengths."""
MOST_REPEATED = 10_000
"""Most passes over a batch and gradient steps at a time."""
LONGEST_LIST = 1_000
"""Most items of a list."""
LONGEST_WORD = 1_000
"""Most characters of a word."""
MOST_VALUES = 10_000
"""Most items and characters of a setting in all, at any depth: a list in which one row stands a thousand times is short
in a file."""
MOST_NUMBERS = 10_000_000
"""Most numbers of an array whose lengths a list gives."""

_COUNTED = re.compile(r".*(step|episode|freq|seed|eval|length|duration|size|rollouts|candidates).*")
_COUNTED_BY_ENVS = re.compile(r"(.*_)?(steps?|timesteps|episodes?|episode_length|duration|horizon|seed|freq)")
"""Of the arguments of environments, wrappers and callbacks: what only counts."""
_REPEATED = re.compile(r"gradient_steps|n_epochs|n_updates")
_SIZED = re.compile(r".*(screen|stack|image|frame|window|kernel)_?size")
_TAKES_A_PATH = re.compile(r"(.*_)?(file|filename|files|path|paths|folder|dir|directory|tensorboard_log)")
_LOOKS_LIKE_A_PATH = re.compile(r"[~.]{1,2}|[~.]*[/\\].*|.*[/\\].*", re.DOTALL)
_NUMBER = r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
_PLAIN_WORD = re.compile(rf"[\w +-]*|(lin_|log_|auto_)?{_NUMBER}|(auto|cpu|cuda|mps)(:\d+)?")
"""All that a word may be, but for the ids of registered environments: nothing with a dot or a colon that could be
imported, nothing with a slash that could be a path."""


def check_arguments(value: Any, author: Author, *, source: str, key: str, name: str = "") -> None:
    """Refuse arguments that an untrusted file may not give, at any depth.

    Refused without trust are words for a file, a folder or something to import, anything but None for an argument whose
    name says that it takes a file or a folder, and numbers, words and lists of absurd size.

    Args:
        value: as it was read: numbers, words, None, classes of `literals.NAMES`, lists and dicts of these.
        author: of the setting.
        source: the file where it stands.
        key: the setting, such as ``env_kwargs``.
        name: of the argument among the setting's.

    Raises:
        ZooError: the author may not give it; the message has file, key, argument and value.
    """
    if author.is_trusted:
        return
    if not name and _size(value) > MOST_VALUES:
        raise ZooError(f"{source}: {key} has more than {MOST_VALUES:,} values. Add --trust if you trust the file.")
    reason = _reason(value, name, key)
    if reason:
        what = f"{key}: {name}={value!r:.200}" if name else f"{key}: {value!r:.200}"
        raise ZooError(
            f"{source}: {what} {reason}. A file may have come from others: give it yourself on the command line, or "
            "add --trust if you trust the file."
        )
    if isinstance(value, dict):
        for inner, item in value.items():
            if not isinstance(inner, str | int | float) or isinstance(inner, bool):
                raise ZooError(f"{source}: {key} has {inner!r} for a name. Names are words: put it in quotes.")
            check_arguments(inner, author, source=source, key=key) if isinstance(inner, str) else None
            check_arguments(item, author, source=source, key=key, name=str(inner))
    elif isinstance(value, list | tuple | set):
        for item in value:
            check_arguments(item, author, source=source, key=key, name=name)


def _reason(value: Any, name: str, key: str) -> str:
    """Say what is wrong with one value of the argument `name` of the setting `key`; empty if nothing is."""
    if value is None or isinstance(value, bool):
        return ""
    if _TAKES_A_PATH.fullmatch(name):
        return "is taken for a file or a folder"
    if isinstance(value, str):
        return _reason_of_word(value)
    if isinstance(value, int):
        most = _most(name, key)
        return f"is a number beyond {most:,}" if abs(value) > most else ""
    if isinstance(value, list | tuple | dict | set) and len(value) > LONGEST_LIST:
        return f"has more than {LONGEST_LIST:,} items"
    if "shape" in name and isinstance(value, list | tuple) and all(type(length) is int for length in value):
        return f"is of more than {MOST_NUMBERS:,} numbers" if math.prod(value) > MOST_NUMBERS else ""
    return ""


def _size(value: Any) -> int:
    """Items and characters at any depth; some number beyond `MOST_VALUES` where there are more."""
    total, level = 0, [value]
    while level and total <= MOST_VALUES:
        item = level.pop()
        total += len(item) if isinstance(item, str) else 1
        inner = item.items() if isinstance(item, dict) else item if isinstance(item, list | tuple | set) else ()
        level += itertools.chain.from_iterable(inner) if isinstance(item, dict) else inner
    return total


def _most(name: str, key: str) -> int:
    """The largest whole number that the argument `name` of the setting `key` may be."""
    if key == "policy_kwargs":  # whose networks are measured as they are made: see `sizes`
        return MOST_COUNTED
    if _REPEATED.fullmatch(name):
        return MOST_REPEATED
    if key == "env_kwargs" or " " in key:  # of a class: see `named_classes`
        return MOST_COUNTED if _COUNTED_BY_ENVS.fullmatch(name) else MOST
    return MOST_COUNTED if _COUNTED.fullmatch(name) and not _SIZED.fullmatch(name) else MOST


def _reason_of_word(word: str) -> str:
    if len(word) > LONGEST_WORD:
        return f"has more than {LONGEST_WORD:,} characters"
    if _PLAIN_WORD.fullmatch(word) or _is_registered(word):
        return ""
    if _LOOKS_LIKE_A_PATH.fullmatch(word):
        return "names a file or a folder"
    return "could name code: words have letters, digits, spaces, _, + and -, or are the id of an environment"


def _is_registered(word: str) -> bool:
    import gymnasium

    return word in gymnasium.registry
