"""Where two answers differ, as paths such as ``monitors/evaluations/arrays/results``."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from tests.tolerance import bound

MORE_IS_FINE = ("signatures/*/*/defaults", "hooks/locals_of_the_loop/*")
"""Dicts that may have more entries than the record: defaults of further parameters, further names in a loop."""


class Mismatch(NamedTuple):
    """One place where the answers differ."""

    path: str
    recorded: Any
    live: Any


def tolerance(file: Path) -> float:
    """How far apart numbers of a file's programs may be, relative to their size: its ``TOLERANCE``, or what rounding
    explains in one pass through networks of two layers of 64."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TOLERANCE":
            return float(ast.literal_eval(node.value))
    return bound(3 + 2 * 64)


def mismatches(recorded: Any, live: Any, path: str, near: float) -> Iterator[Mismatch]:
    """Every place where ``live`` is not ``recorded``.

    Args:
        recorded, live: the answers.
        path: where they stand.
        near: relative tolerance of numbers.
    """
    if isinstance(recorded, dict) and isinstance(live, dict):
        if "raised" in recorded or "raised" in live:
            if recorded.get("raised") != live.get("raised"):
                yield Mismatch(path, shown(recorded), shown(live))
            return
        more = any(fnmatchcase(path, pattern) for pattern in MORE_IS_FINE)
        for key in [*recorded, *([] if more else live.keys() - recorded.keys())]:
            if key in recorded and key in live:
                yield from mismatches(recorded[key], live[key], f"{path}/{key}", near)
            else:
                absent = "(nothing)"
                yield Mismatch(f"{path}/{key}", shown(recorded.get(key, absent)), shown(live.get(key, absent)))
    elif isinstance(recorded, list) and isinstance(live, list) and len(recorded) == len(live):
        for index, pair in enumerate(zip(recorded, live, strict=True)):
            yield from mismatches(*pair, f"{path}/{index}", near)
    elif not equal(recorded, live, near):
        yield Mismatch(path, shown(recorded), shown(live))


def equal(recorded: Any, live: Any, near: float) -> bool:
    """Whether two leaves are the same, numbers within the tolerance."""
    if all(isinstance(value, float | int) and not isinstance(value, bool) for value in (recorded, live)):
        return bool(abs(recorded - live) <= near * max(1.0, abs(recorded)))
    return type(recorded) is type(live) and bool(recorded == live)


def shown(value: Any) -> Any:
    """``value``, cut where it is long."""
    text = str(value)
    return value if len(text) < 200 else text[:200] + " ..."
