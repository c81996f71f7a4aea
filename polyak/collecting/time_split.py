"""Measurement of the wall time that each stage of a training takes.

=============  =========================================================================================================
``env``        stepping and resetting the environments
``inference``  from observations to actions that can be sent, to the device and back; values for on-policy learning
``copy``       storing transitions in the buffer
``sample``     drawing minibatches from it
``update``     gradient steps, compiling them, estimating returns
``other``      the rest: callbacks, logging, Python around it all
=============  =========================================================================================================

Work on a GPU counts where the host waits for it. The clock is read five times in a step, which is its only cost;
results of training do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Adds up the seconds of ``with`` blocks. A loop for which these are too slow adds to ``seconds`` directly."""

    __slots__ = ("_started", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._started

    def timing(self, items: Iterable[T]) -> Iterator[T]:
        """Yields the items and adds the time to make each one."""
        started = perf_counter()
        for item in items:
            self.seconds += perf_counter() - started
            yield item
            started = perf_counter()
        self.seconds += perf_counter() - started


class TimeSplit:
    """The stages' time from :meth:`start` to :meth:`stop`, or until now. Unmeasured time is ``other``."""

    def __init__(self) -> None:
        self.env = Stopwatch()
        self.inference = Stopwatch()
        self.copy = Stopwatch()
        self.sample = Stopwatch()
        self.update = Stopwatch()
        """Includes sampling within updates; :meth:`seconds` subtracts ``sample``."""
        self._began = 0.0
        self._ended: float | None = 0.0
        self._logged = self.seconds()

    def start(self) -> None:
        """Reset all stages and start."""
        for watch in (self.env, self.inference, self.copy, self.sample, self.update):
            watch.seconds = 0.0
        self._began, self._ended = perf_counter(), None
        self._logged = dict.fromkeys(self._logged, 0.0)

    def stop(self) -> None:
        """Stop the clock."""
        self._ended = perf_counter()

    def seconds(self) -> dict[str, float]:
        """Returns each stage's seconds so far; their sum is the wall time."""
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
        """Returns each stage's whole percent of the wall time."""
        return _percent(self.seconds(), dict.fromkeys(self._logged, 0.0))

    def percent_since_logged(self) -> dict[str, int]:
        """Returns each stage's whole percent of the time since the last call."""
        before, self._logged = self._logged, self.seconds()
        return _percent(self._logged, before)


def _percent(seconds: dict[str, float], before: dict[str, float]) -> dict[str, int]:
    whole = sum(seconds.values()) - sum(before.values()) or 1.0
    return {name: round(100 * (seconds[name] - before[name]) / whole) for name in seconds}
