"""Where the wall time of a training goes.

=============  =========================================================================================================
``env``        stepping and resetting the environments
``inference``  from observations to actions that can be sent, to the device and back; values for on-policy learning
``copy``       storing transitions in the buffer
``sample``     drawing minibatches from it
``update``     gradient steps, compiling them, estimating returns
``other``      the rest: callbacks, logging, Python around it all
=============  =========================================================================================================

Work that a GPU does meanwhile counts where it is waited for. The loops call the clock five times in a step, which
is all it costs; nothing that is learned depends on what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Seconds spent in ``with`` blocks. Where even these cost too much, a loop adds to ``seconds`` by itself."""

    __slots__ = ("_started", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._started

    def timing(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; the time that it takes to make each one is added."""
        started = perf_counter()
        for item in items:
            self.seconds += perf_counter() - started
            yield item
            started = perf_counter()
        self.seconds += perf_counter() - started


class TimeSplit:
    """The parts of the time from :meth:`start` to :meth:`stop`, or to now. What is not measured is ``other``."""

    def __init__(self) -> None:
        self.env = Stopwatch()
        self.inference = Stopwatch()
        self.copy = Stopwatch()
        self.sample = Stopwatch()
        self.update = Stopwatch()
        """Including what is drawn meanwhile; :meth:`seconds` takes ``sample`` off."""
        self._began = 0.0
        self._ended: float | None = 0.0
        self._logged = self.seconds()

    def start(self) -> None:
        """Forget everything and begin."""
        for watch in (self.env, self.inference, self.copy, self.sample, self.update):
            watch.seconds = 0.0
        self._began, self._ended = perf_counter(), None
        self._logged = dict.fromkeys(self._logged, 0.0)

    def stop(self) -> None:
        """The time is over."""
        self._ended = perf_counter()

    def seconds(self) -> dict[str, float]:
        """Each part so far, in seconds; together the wall time."""
        wall = (perf_counter() if self._ended is None else self._ended) - self._began
        parts = {
            "env": self.env.seconds,
            "inference": self.inference.seconds,
            "copy": self.copy.seconds,
            "sample": self.sample.seconds,
            "update": max(self.update.seconds - self.sample.seconds, 0.0),
        }
        return {**parts, "other": max(wall - sum(parts.values()), 0.0)}

    def percent(self) -> dict[str, int]:
        """Each part's whole percent of the wall time."""
        return _percent(self.seconds(), dict.fromkeys(self._logged, 0.0))

    def percent_since_logged(self) -> dict[str, int]:
        """Each part's whole percent of the time since this was last asked."""
        before, self._logged = self._logged, self.seconds()
        return _percent(self._logged, before)


def _percent(seconds: dict[str, float], before: dict[str, float]) -> dict[str, int]:
    whole = sum(seconds.values()) - sum(before.values()) or 1.0
    return {name: round(100 * (seconds[name] - before[name]) / whole) for name in seconds}
