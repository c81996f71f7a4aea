"""The table of hostile inputs: name -> what it is read by, what must be said of it, and what makes it."""

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


def hostile(door: str, says: str, name: str = "") -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Put a function that makes an input into the table, once for each of some doors (separated by spaces)."""

    def add(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
        for one in door.split():
            key = f"{one}: {name or make.__name__.replace('_', ' ').strip()}"
            assert key not in CASES, key
            CASES[key] = Case(one, says, make)
        return make

    return add
