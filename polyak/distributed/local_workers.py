"""Objects in this process, asked as if each were in a process of its own: for tests and debuggers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from polyak.distributed.ray_workers import Failure


class LocalWorkers:
    """Objects of a class; see :class:`~polyak.distributed.ray_workers.Workers`, whose interface this is.

    Args:
        cls: their class.
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
        """What each of them answers first."""
        return dict(enumerate(self.ask_all(method)))

    def fetch(self, value: Any) -> Any:
        """The value itself."""
        return value

    def ask(self, worker: int, method: str, *arguments: Any, apart: bool = False) -> None:
        """Let one of them do something, at once."""
        answer: Any
        try:
            answer = getattr(self._objects[worker], method)(*arguments)
        except Exception as error:
            answer = Failure(error, gone=False)
        self._answers.append((worker, method, answer))

    def answers(self, wait: bool = True) -> list[tuple[int, str, Any]]:
        """What was answered since the last time: (which of them, method, result)."""
        found, self._answers = self._answers, []
        return found

    def disown(self, again: Iterable[int] = ()) -> None:
        """Report no answer to what was asked so far."""
        self._answers.clear()

    def ask_all(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """What all of them answer, in order: the i-th gets the i-th of each of the arguments."""
        return [getattr(one, method)(*(each[worker] for each in arguments)) for worker, one in enumerate(self._objects)]

    def replace(self, worker: int, failure: Failure, *_: Any) -> None:
        """Raise what one of them has raised: none is ever gone."""
        raise failure.error

    def renew_due(self, wait: bool = True) -> None:
        """Nothing: none is ever gone."""

    def waiting_for(self, worker: int) -> int:
        """None: answers come at once."""
        return 0

    def renew(self, worker: int) -> None:
        """Nothing: none is ever gone."""

    def leaving(self) -> list[int]:
        """None."""
        return []

    def stop(self) -> None:
        """End all."""
        for one in self._objects:
            one.close()
        self._objects = []
