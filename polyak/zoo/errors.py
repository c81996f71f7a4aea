"""Mistakes of the person at the command line: told in one sentence, without a traceback, with exit status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ZooError(Exception):
    """What was asked cannot be done; the message names the argument, its value and a way out."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return `` Did you mean 'x' or 'y'?`` for the options closest to `name`, or an empty string."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.55)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(by_lower[match]) for match in close)}?"


@contextmanager
def usage_errors(doing: str) -> Iterator[None]:
    """Turn an exception raised while `doing` what the user asked into a `ZooError` with the same message.

    Meant for construction only, where a wrong value and a wrong name are the causes: an exception in the middle of
    training is a bug of ours or of the environment's and keeps its traceback.
    """
    import gymnasium

    expected = (ValueError, TypeError, AssertionError, NotImplementedError, ImportError, OSError, gymnasium.error.Error)
    try:
        yield
    except expected as error:
        reason = str(error) or type(error).__name__
        raise ZooError(f"{doing}: {reason}{_missing_extra(reason)}") from error


def _missing_extra(reason: str) -> str:
    """Name the extra of polyak that brings the simulator which gymnasium says is missing."""
    if "polyak[" in reason:
        return ""
    lower = reason.lower()
    for package, extra in (("box2d", "box2d"), ("mujoco", "mujoco"), ("ale_py", "atari"), ("ale-py", "atari")):
        if package in lower and "install" in lower:
            return f" (with polyak: pip install 'polyak[{extra}]')"
    return ""
