"""A thread that produces items ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class ActorThread(Generic[Item]):
    """Produces items in a thread, into a bounded queue.

    An exception in the thread is raised again by :meth:`take`. A copy has no items and no thread.

    Args:
        make: returns an item; its argument is a function that returns True once it should stop, whereupon it may return
            ``None``.
        size: capacity of the queue.
    """

    def __init__(self, make: Callable[[Callable[[], bool]], Item | None], size: int) -> None:
        self._make, self.size = make, size
        self._waiting: deque[Item] = deque()
        self._error: BaseException | None = None
        self._stopping = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start or continue the thread; does nothing if it runs already, or if an error waits to be raised."""
        if self._thread is None and self._error is None:
            self._stopping = False
            self._thread = Thread(target=self._run, name="polyak-actor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Items in the queue can still be taken."""
        if self._thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._thread = None

    def take(self) -> Item:
        """Returns the oldest item; waits until there is one.

        Raises:
            BaseException: raised in the thread, which has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._error is not None)
            if self._waiting:
                self._changed.notify_all()
                return self._waiting.popleft()
            error, self._error, self._thread = self._error, None, None
        assert error is not None
        raise error

    def __len__(self) -> int:
        return len(self._waiting)

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping or len(self._waiting) < self.size)
                if self._stopping or (item := self._make(lambda: self._stopping)) is None:
                    return
                with self._changed:
                    self._waiting.append(item)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make, self.size)
