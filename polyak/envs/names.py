"""Names that nobody knows, and those that were probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_NAME = 200
"""The time that a comparison takes grows with the square of it."""


def did_you_mean(name: str, known: Iterable[str], at_most: int = 1) -> str:
    """`` Did you mean 'x' or 'y'?`` for the ``known`` names closest to ``name``, in any case; nothing if none is."""
    if len(name) > _LONGEST_NAME:
        return ""
    by_lower_case = {option.lower(): option for option in known}
    close = get_close_matches(name.lower(), by_lower_case, at_most)
    return f" Did you mean {' or '.join(repr(by_lower_case[match]) for match in close)}?" if close else ""
