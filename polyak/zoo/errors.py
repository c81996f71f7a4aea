"""Errors that end commands: usage errors, and trainings that failed."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

NOTHING_SAVED = 1
"""Exit status of a command that failed while running and saved nothing that it had learned."""
SAVED = 3
"""Exit status of a training that failed and saved its model."""

_MOST_FRAMES = 20
"""Number of innermost frames of a long traceback that are shown: they contain the faulty line of the environment or
callback."""


class ZooError(Exception):
    """A usage error; the message names the argument, its value and the fix.

    It is printed as one sentence, without a traceback, with exit status 2.
    """


class TrainingFailed(Exception):
    """Training, or saving its results, failed.

    Attributes:
        cause: the error.
        outcome: after how many steps, where the model is, and what could not be saved.
        status: exit status of the command, `SAVED` or `NOTHING_SAVED`.
    """

    def __init__(self, cause: BaseException, outcome: str, status: int) -> None:
        super().__init__(f"{in_one_line(cause)}; {outcome}")
        self.cause, self.outcome, self.status = cause, outcome, status


def in_one_line(error: BaseException) -> str:
    """Return type and message of an error, the first line, and its notes, such as which environment raised it."""
    first = "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
    return "; ".join([first, *getattr(error, "__notes__", ())])


def readable(error: BaseException) -> str:
    """Return the traceback of an error as text, in which the message of the original error occurs once.

    If an error repeats the message of its cause, the traceback continues to the first faulty line; an error from
    another process holds that traceback in its message.
    """
    frames, origin = traceback.extract_tb(error.__traceback__), error
    while (before := _origin(origin)) is not None and str(before) and str(origin).startswith(str(before)):
        inner = before.__traceback__
        outer = [frame for frame, _ in traceback.walk_tb(origin.__traceback__)]
        shared = outer.index(inner.tb_frame) if inner is not None and inner.tb_frame in outer else 0
        frames, origin = traceback.StackSummary.from_list([*frames[:shared], *traceback.extract_tb(inner)]), before
    if origin is not error:
        shown = traceback.format_list(frames[-_MOST_FRAMES:])
        return "".join(["Traceback (most recent call last):\n", *shown, *traceback.format_exception_only(error)])
    from_elsewhere = error.__cause__ is not None and error.__cause__.__traceback__ is None
    return "".join(traceback.format_exception(error, limit=-_MOST_FRAMES, chain=not from_elsewhere))


def _origin(error: BaseException) -> BaseException | None:
    """Return the error in whose handling another one was raised, if it was raised in this process."""
    origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return origin if origin is not None and origin.__traceback__ is not None else None


@contextmanager
def usage_errors(doing: str) -> Iterator[None]:
    """Convert an exception raised while `doing` something for the user to a `ZooError` with the same message.

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
    """Name the extra of polyak that installs the simulator which gymnasium reports as missing."""
    if "polyak[" in reason:
        return ""
    lower = reason.lower()
    for package, extra in (("box2d", "box2d"), ("mujoco", "mujoco"), ("ale_py", "atari"), ("ale-py", "atari")):
        if package in lower and "install" in lower:
            return f" (with polyak: pip install 'polyak[{extra}]')"
    return ""
