"""Warnings that name the line of the user's program that they are about, however deep in the package they arise; and
those of what is allowed yet seldom meant, each given once in a process, with the way out."""

from __future__ import annotations

import re
import sys
import warnings
from types import FrameType

#: Packages that stand between a program and the line that warns; no line of theirs was written to call this library.
_BETWEEN = {"polyak", "torch", "gymnasium", "click", "typer"} | sys.stdlib_module_names


_COMMANDS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What terminals take for commands, such as colours."""
_LONGEST = 2_000
"""Characters of a message. Some list every name that a file has."""


def printable(text: str, most: int = _LONGEST) -> str:
    """What comes from a file as a line of a message: without commands for terminals, and not without end."""
    text = " ".join("".join(c if c.isprintable() else " " for c in _COMMANDS.sub("", text)).split())
    return text if len(text) <= most else f"{text[:most]} ..."


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, as ``warnings.warn`` does, at the innermost line that is neither ours nor of what calls us for the user.

    Where there is no such line, as in a worker process, the warning is given at the line that called this function.
    """
    caller = sys._getframe(1)
    frame = _line_of_user(caller) or caller
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__") or "<unknown>"
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _line_of_user(frame: FrameType | None) -> FrameType | None:
    # By the names of modules, not by files: what dataclasses and decorators generate has no file of its own.
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return frame


_given: set[str] = set()


def advise(kind: str, message: str) -> None:
    """Warn, unless this kind of warning has been given before.

    Args:
        kind: what the warning is about.
        message: what happens, and what to write if something else was meant.
    """
    if kind in _given:
        return
    _given.add(kind)
    warn_user(message, UserWarning)


def forget() -> None:
    """Let every kind of warning be given again."""
    _given.clear()
