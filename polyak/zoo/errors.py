"""Mistakes of the person at the command line: told in one sentence, without a traceback, with exit status 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ZooError(Exception):
    """What was asked cannot be done; the message names the argument, its value and a way out."""


@contextmanager
def usage_errors(doing: str) -> Iterator[None]:
    """Turn an exception raised while `doing` what the user asked into a `ZooError` with the same message.

    Meant for construction only, where a wrong value and a wrong name are the causes: an exception in the middle of
    training is a bug of ours or of the environment's and keeps its traceback.
    """
    import gymnasium

    expected = (
        *(ValueError, TypeError, AssertionError, NotImplementedError, ImportError, OSError, gymnasium.error.Error),
        *(ArithmeticError, MemoryError),
    )
    try:
        yield
    except (*expected, RuntimeError) as error:
        if not isinstance(error, expected) and "allocate memory" not in str(error):  # PyTorch's MemoryError
            raise
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
