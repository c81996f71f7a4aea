"""The code that a reader opens to follow an algorithm from the first step of its runner to that of its optimizer.

Counted are the functions that run, uncompiled, in the first iterations: acting, storing, drawing, learning, and what
they prepare for that. Construction, environments, callbacks and logs are left out.
"""

import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tests.laws.floors import PACKAGE

LEFT_OUT = ("envs", "callbacks", "evaluation", "logging", "collecting/time_split")


class Reading(NamedTuple):
    """What there is to read."""

    files: dict[str, int]
    """Lines of code by file."""
    functions: int

    @property
    def lines(self) -> int:
        """Lines of code in all."""
        return sum(self.files.values())


def first_iterations(model: Any, steps: int) -> Reading:
    """What runs in the first ``steps`` environment steps of a model's training."""
    seen: set[CodeType] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    total, callback = model._setup_learn(steps)
    loop = model._loop(callback, None)
    while model.num_timesteps < total:
        sys.setprofile(trace)
        try:
            loop.iterate()
        finally:
            sys.setprofile(None)
    return _count(seen)


def _count(seen: set[CodeType]) -> Reading:
    opened: dict[str, set[int]] = defaultdict(set)
    functions = 0
    for code in seen:
        name = _within(code)
        if name is None or name.startswith(LEFT_OUT):
            continue
        if (body := _functions(code.co_filename).get((code.co_name, code.co_firstlineno))) is not None:
            opened[name] |= body
            functions += 1
    return Reading({name: len(lines) for name, lines in sorted(opened.items(), key=lambda i: -len(i[1]))}, functions)


@cache
def _functions(path: str) -> dict[tuple[str, int], set[int]]:
    """The lines of code of each function of a file, by its name and the line in which it begins."""
    text = Path(path).read_text()
    lines = text.splitlines()
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            body = set(range(first, (node.end_lineno or first) + 1))
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                body -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
            code = {n for n in body if lines[n - 1].strip() and not lines[n - 1].strip().startswith("#")}
            found[node.name, first] = code
    return found


def _within(code: CodeType) -> str | None:
    """The file of a piece of code within the package."""
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None
