"""The table of hostile inputs: name -> what it is read by, what must be said of it, and what makes it."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """One hostile input."""

    door: str
    """What reads it: a function of :mod:`.doors`."""
    says: str
    """A regular expression that the refusal must match; empty where it may be accepted, since it does no harm."""
    make: Callable[[Path], Any]
    """Writes it into an empty folder, and returns its path."""


CASES: dict[str, Case] = {}
PART: set[str] = set()
"""Names of cases that between them have each input read once; where several read it, each of those in turn."""
_shared = itertools.count()


def hostile(door: str, says: str, name: str = "") -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Put a function that makes an input into the table, once for each of some doors (separated by spaces)."""

    def add(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
        doors = door.split()
        turn = doors[next(_shared) % len(doors) if len(doors) > 1 else 0]
        for one in doors:
            key = f"{one}: {name or make.__name__.replace('_', ' ').strip()}"
            assert key not in CASES, key
            CASES[key] = Case(one, says, make)
            if one == turn:
                PART.add(key)
        return make

    return add
