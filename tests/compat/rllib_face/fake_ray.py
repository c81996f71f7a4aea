"""Ray without processes: what stands in for the module in tests of those who speak to it."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from polyak.seeding import rng_state, set_rng_state


class RayActorError(Exception):
    """A process is gone."""


class ObjectLostError(Exception):
    """Something is gone from the store."""


class Death(BaseException):
    """What ends a process, which nothing in it can catch."""


class Reference:
    """Something that is, or will be, in the store."""

    done = False
    value: Any = None
    error: Exception | None = None
    rest: Reference | None = None
    """To the second of two things that are returned apart."""

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        if self.rest is not None:
            value, second = value or (None, None)
            self.rest.settle(second, error)
        self.done, self.value, self.error = True, _stored(value), error


class Actor:
    """Does what it is asked, one after another, when somebody waits for it; has generators to itself."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.asked: deque[tuple[Reference, str, tuple[Any, ...]]] = deque()
        self.make, self.made, self.alive = make, None, True
        self.random = rng_state()

    def __getattr__(self, method: str) -> Any:
        def apart(*arguments: Any) -> tuple[Reference, Reference]:
            reference = remote(*arguments)
            reference.rest = Reference()
            return reference, reference.rest

        def remote(*arguments: Any) -> Reference:
            reference = Reference()
            given = tuple(each if isinstance(each, Reference) else _stored(each) for each in arguments)
            self.asked.append((reference, method, given))
            return reference

        return SimpleNamespace(remote=remote, options=lambda num_returns: SimpleNamespace(remote=apart))

    def work(self, requests: int) -> None:
        """Do some of what it was asked."""
        while self.alive and self.asked and requests:
            reference, method, arguments = self.asked.popleft()
            try:
                with self._in_its_process():
                    self.made = self.make() if self.made is None else self.made
                    for lost in (each.error for each in arguments if isinstance(each, Reference) and each.error):
                        raise lost
                    values = [each.value if isinstance(each, Reference) else each for each in arguments]
                    reference.settle(getattr(self.made, method)(*values))
            except Death as death:
                self.asked.appendleft((reference, method, arguments))
                self.die(str(death))
            except Exception as error:
                reference.settle(error=error)
            requests -= 1
        if not self.alive:
            self.die()

    def die(self, why: str = "killed") -> None:
        """Whatever it was asked, and will be, has this error."""
        self.alive = False
        while self.asked:
            self.asked.popleft()[0].settle(error=RayActorError(f"The actor died unexpectedly.\nIt was {why}."))

    @contextmanager
    def _in_its_process(self) -> Iterator[None]:
        def exits(code: int) -> None:
            raise Death(f"exit code {code}")

        outside = rng_state()
        set_rng_state(*self.random)
        try:
            with patch.object(os, "_exit", exits):
                yield
        finally:
            self.random = rng_state()
            set_rng_state(*outside)


class FakeRay:
    """The module. Actors do as many of the requests as ``speed`` says whenever somebody waits for any."""

    exceptions = SimpleNamespace(RayActorError=RayActorError, ObjectLostError=ObjectLostError)

    def __init__(self) -> None:
        self.running, self.works, self.speed = False, False, 1
        self.actors: list[Actor] = []
        self.puts = 0
        self.options: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return self.running or bool(self.actors)

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: f"node{self.works}")

    def init(self, *_: Any, **__: Any) -> None:
        self.running = True

    def shutdown(self) -> None:
        self.running = False

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.available_resources()}]

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 64.0}

    def remote(self, **options: Any) -> Any:
        self.options = options

        def wrapped(cls: type) -> Any:
            return SimpleNamespace(remote=lambda *arguments: self._begun(lambda: cls(*arguments)))

        return wrapped

    def _begun(self, make: Callable[[], Any]) -> Actor:
        self.actors.append(Actor(make))
        return self.actors[-1]

    def put(self, value: Any) -> Reference:
        self.puts += 1
        reference = Reference()
        reference.settle(value)
        return reference

    def wait(self, references: list[Reference], num_returns: int, timeout: float | None) -> Any:
        if not self.works and not all(reference.done for reference in references):
            self.works = True  # nothing is done meanwhile for workers of another test that are collected as garbage
            try:
                for actor in self.actors:
                    actor.work(self.speed)
            finally:
                self.works = False
        ready = [reference for reference in references if reference.done][:num_returns]
        return ready, [reference for reference in references if reference not in ready]

    def get(self, reference: Reference) -> Any:
        if reference.error is not None:
            raise reference.error
        return reference.value

    def kill(self, actor: Actor, no_restart: bool) -> None:
        assert no_restart
        actor.die()


def _stored(value: Any) -> Any:
    """As it comes out of the store: arrays are nobody's to write to."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(content, buffers=[bytes(buffer) for buffer in buffers])
