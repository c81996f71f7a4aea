"""JSON from untrusted files."""

from __future__ import annotations

import json
from typing import Any

MOST_BYTES = 64 * 2**20
MOST_VALUES = 4_000_000
"""An empty list takes three bytes of text and sixty of memory."""
MOST_DIGITS = 100
"""Digits of an integer; the states of random generators have 39."""
DEEPEST = 64
"""Depth of nested lists and objects: no description needs as much."""


def parse(text: str | bytes, what: str) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: at most :data:`MOST_BYTES` long, of at most :data:`MOST_VALUES` values, which are nested at most
            :data:`DEEPEST` deep.
        what: the name of the text in messages.

    Raises:
        ValueError: the text is no JSON, or beyond the limits.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"{what} has {len(text):,} bytes of JSON: more than {MOST_BYTES:,} are not read.")
    if (values := _at_most(text)) > MOST_VALUES:
        raise ValueError(f"{what} has some {values:,} values: more than {MOST_VALUES:,} are not read.")
    try:
        value = json.loads(text, parse_int=_whole_number)
    except RecursionError as error:
        raise ValueError(f"{what} is nested more than {DEEPEST} deep.") from error
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}.") from error
    _check_depth(value, what)
    return value


def parse_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Parses a JSON object; raises ValueError for anything else: see :func:`parse`."""
    value = parse(text, what)
    if not isinstance(value, dict):
        raise ValueError(f"{what} holds {value!r:.80} instead of names and values.")
    return value


def whole(values: dict[str, Any], key: str, what: str, least: int = 0) -> int:
    """A whole number of at least ``least`` from an object; true and false are none.

    Raises:
        ValueError: it is not there, or something else; names the key and the value.
    """
    value = values.get(key)
    if type(value) is not int or value < least:
        raise ValueError(f"{what} has {key}={value!r:.80}, not a whole number of at least {least}.")
    return value


def _at_most(text: str | bytes) -> int:
    """More values than a text can hold: each begins a list or an object, or follows a comma or a bracket."""
    if isinstance(text, bytes):
        return sum(map(text.count, (b",", b"[", b"{"))) + 1
    return sum(map(text.count, (",", "[", "{"))) + 1


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits, more than {MOST_DIGITS}")
    return int(digits)


def _check_depth(value: Any, what: str) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        parts = (item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer))
        level = [item for item in parts if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(f"{what} is nested more than {DEEPEST} deep.")
