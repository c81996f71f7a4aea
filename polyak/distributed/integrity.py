"""Whether a group of processes knows what has become of each of its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


class Integrity:
    """Whether a group of processes and what is noted about it here agree.

    An exception, such as Ctrl-C or an environment's error, may come between a request and its answer, or between an
    answer and the place where it is noted. The group begins again then, before it is used.

    Attributes:
        broken: whether an exception has left a block of :meth:`changing`; also set while one runs.
    """

    def __init__(self) -> None:
        self.broken = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around all that asks processes or notes their answers. Blocks may be nested.

        The attribute is set before and put back after: Ctrl-C may come at any line, also in a ``finally``.
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
