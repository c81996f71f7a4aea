"""Detection of requests to a group of processes whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


class Integrity:
    """Tracks whether the records about a group of processes are up to date.

    An exception, such as Ctrl-C or an environment's error, may occur between a request and its answer, or before an
    answer is recorded. The group is then reset before its next use.

    Attributes:
        broken: whether an exception has left a block of :meth:`changing`; also set while one runs.
    """

    def __init__(self) -> None:
        self.broken = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Marks a block that sends requests or records answers. Blocks may be nested.

        The attribute is set before and restored after, without ``finally``: Ctrl-C may occur at any line.
        """
        before, self.broken = self.broken, True
        yield
        self.broken = before


class Recovering(Protocol):
    """Processes that work for an object here."""

    integrity: Integrity

    def recover(self) -> None:
        """Begin again if :attr:`integrity` is broken."""


def whole(method: Method) -> Method:
    """A method of a :class:`Recovering` group that begins when the group is whole, and leaves it so unless it raises.

    It must not be called within another one of its kind.
    """

    @wraps(method)
    def begun_whole(self: Recovering, *args: Any, **kwargs: Any) -> Any:
        self.recover()
        with self.integrity.changing():
            return method(self, *args, **kwargs)

    return cast(Method, begun_whole)
