"""A thread that brings one thing after another, as long as they are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class ActorThread(Generic[Item]):
    """Makes items ahead of those that are taken, as many as may wait and one more.

    What is raised while an item is made is raised again where it would have been taken. A copy has no items and no
    thread.

    Args:
        make: one item; ``None``, once its argument, a function, says that it is to stop.
        size: how many may wait.
    """

    def __init__(self, make: Callable[[Callable[[], bool]], Item | None], size: int) -> None:
        self._make, self.size = make, size
        self._waiting: deque[Item] = deque()
        self._error: BaseException | None = None
        self._stopping = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin, or continue; nothing, if it is running, or if an error waits to be raised."""
        if self._thread is None and self._error is None:
            self._stopping = False
            self._thread = Thread(target=self._run, name="polyak-actor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Come to rest. What waits can still be taken."""
        if self._thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._thread = None

    def take(self) -> Item:
        """The oldest item, as soon as there is one.

        Raises:
            BaseException: what was raised in the thread, which has ended then.
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
