"""Objects in this process behind the interface of remote workers, for tests and debuggers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from polyak.distributed.ray_workers import Failure


class LocalWorkers:
    """Objects of a class; see :class:`~polyak.distributed.ray_workers.Workers`, whose interface this is.

    Args:
        cls: class of the objects.
        arguments: for the constructor of each.
    """

    def __init__(self, cls: type, arguments: Sequence[tuple[Any, ...]]) -> None:
        self.restarts = self.failures = 0
        self._objects = [cls(*each) for each in arguments]
        self._answers: list[tuple[int, str, Any]] = []

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, value: Any) -> Any:
        """The value itself: nothing travels."""
        return value

    def begin(self, method: str, within: float) -> dict[int, Any]:
        """Returns the first answer of each worker."""
        return dict(enumerate(self.ask_all(method)))

    def fetch(self, value: Any) -> Any:
        """The value itself."""
        return value

    def ask(self, worker: int, method: str, *arguments: Any, apart: bool = False) -> None:
        """Call a method of one worker at once."""
        answer: Any
        try:
            answer = getattr(self._objects[worker], method)(*arguments)
        except Exception as error:
            answer = Failure(error, gone=False)
        self._answers.append((worker, method, answer))

    def answers(self, wait: bool = True) -> list[tuple[int, str, Any]]:
        """Returns the answers since the last call: (worker, method, result)."""
        found, self._answers = self._answers, []
        return found

    def disown(self, again: Iterable[int] = ()) -> None:
        """Discard the answers to all earlier requests."""
        self._answers.clear()

    def ask_all(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """Returns all workers' answers, in order: the i-th gets the i-th of each of the arguments."""
        return [getattr(one, method)(*(each[worker] for each in arguments)) for worker, one in enumerate(self._objects)]

    def replace(self, worker: int, failure: Failure, *_: Any) -> None:
        """Raise the error of a worker: local ones never die."""
        raise failure.error

    def renew_due(self, wait: bool = True) -> None:
        """Does nothing: local workers never die."""

    def waiting_for(self, worker: int) -> int:
        """Returns 0: answers are immediate."""
        return 0

    def renew(self, worker: int) -> None:
        """Does nothing: local workers never die."""

    def leaving(self) -> list[int]:
        """Returns an empty list: local workers never leave."""
        return []

    def stop(self) -> None:
        """End all."""
        for one in self._objects:
            one.close()
        self._objects = []
