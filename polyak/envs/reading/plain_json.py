"""JSON from files that others made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MOST_BYTES = 64 * 2**20
DEEPEST = 64
"""Lists and objects within each other: no description needs as many."""


def parse(text: str | bytes, what: str) -> Any:
    """The value that a text says.

    Args:
        text: at most :data:`MOST_BYTES` long, and nested at most :data:`DEEPEST` deep.
        what: what to call it in messages.

    Raises:
        ValueError: it is no JSON, or beyond the limits.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"{what} has {len(text):,} bytes of JSON: more than {MOST_BYTES:,} are not read.")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{what} is nested more than {DEEPEST} deep.") from error
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}.") from error
    _check_depth(value, what)
    return value


def parse_object(text: str | bytes, what: str) -> dict[str, Any]:
    """The same of an object; anything else is a ValueError."""
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


def _check_depth(value: Any, what: str) -> None:
    level, depth = _composed([value]), 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"{what} is nested more than {DEEPEST} deep.")
        level = [part for outer in level for part in _composed(outer.values() if isinstance(outer, dict) else outer)]


def _composed(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]
