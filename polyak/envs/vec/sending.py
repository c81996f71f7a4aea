"""Serialization for worker processes: functions that make environments, and the program that they import."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle


def packed(make: object, argument: str, first: int = 0) -> bytes:
    """Serializes a function that makes environments, or several, for another process.

    Args:
        make: the function, or a list of functions; or a registered name.
        argument: name of the user's argument, for messages.
        first: the index of the first of several.

    Raises:
        TypeError: one cannot be pickled; the message names the argument, the cause and the fix.
    """
    try:
        return cloudpickle.dumps(make)
    except Exception as error:  # pickling raises almost anything
        several = enumerate(make, first) if isinstance(make, Sequence) else ()
        refused = next(((f"{argument}[{i}]", one) for i, one in several if not _is_sendable(one)), (argument, make))
        raise TypeError(
            "{}={!r:.200} cannot be sent to a worker process ({}: {}). Make what it refers to, such as locks, open "
            "files and connections, within the function; or step environments in this process, by DummyVecEnv.".format(
                *refused, type(error).__name__, error
            )
        ) from error


def _is_sendable(make: Any) -> bool:
    try:
        cloudpickle.dumps(make)
    except Exception:
        return False
    return True


@contextmanager
def main_imported_if_possible() -> Iterator[None]:
    """Lets processes that are started within the block import the main program only if it is in a file.

    A program read from the standard input has the file name ``<stdin>``; its functions are sent to them.
    """
    main: Any = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or not (file.startswith("<") and file.endswith(">")):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = file
