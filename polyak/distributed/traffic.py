"""Counts of the data that arrive from other processes."""

import time
from collections import deque
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

SPAN = 10.0
"""Least number of seconds over which rates are computed."""


class RunnerPlace(NamedTuple):
    """The host and process of a runner."""

    process: int
    node: str


class Flow(NamedTuple):
    """The data that arrived from runners in a period."""

    seconds: float
    bytes: float
    lag: float | None
    """Age of the weights in updates, the mean over all rows; ``None`` without rows."""
    rows: np.ndarray
    """Rows of each runner."""
    fresh: np.ndarray
    """Rows of each runner since the last reading."""


class Traffic:
    """Counts the data that arrive from runners.

    The size of a row is measured once for each reading, at the first arrival.

    Args:
        runners: number of runners.
    """

    def __init__(self, runners: int) -> None:
        self._total = np.zeros(4 + runners)
        """Time of reading, bytes, rows of known age, the sum of their ages, rows of each runner."""
        self._total[0] = time.monotonic()
        self._read = deque([self._total.copy()])
        self._row_bytes = 0.0

    def note(self, runner: int, rows: int, answer: Any) -> None:
        """Count the rows of a runner's result, whose part ``answer`` has arrived in this process."""
        self._row_bytes = self._row_bytes or _bytes_of(answer) / max(rows, 1)
        self._total[4 + runner] += rows
        self._total[1] += rows * self._row_bytes

    def note_lag(self, rows: int, updates: float) -> None:
        """Count rows that were taken when the weights that acted were so many updates old."""
        self._total[2:4] += rows, rows * updates

    def read(self) -> Flow:
        """Returns the data that arrived in the last :data:`SPAN` seconds, or since the reading before these."""
        now, self._row_bytes = self._total.copy(), 0.0
        now[0] = time.monotonic()
        while len(self._read) > 1 and now[0] - self._read[1][0] >= SPAN:
            self._read.popleft()
        seconds, size, aged, ages, *rows = (now - self._read[0]).tolist()
        fresh = (now - self._read[-1])[4:]
        self._read.append(now)
        return Flow(max(seconds, 1e-9), size, ages / aged if aged else None, np.array(rows), fresh)


class Busy:
    """Seconds of work, as a share of the time."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, time.monotonic()

    def percent(self) -> int:
        """Since the last reading."""
        share = self.seconds / max(time.monotonic() - self._since, 1e-9)
        self.seconds, self._since = 0.0, time.monotonic()
        return round(100 * min(share, 1.0))


def _bytes_of(answer: Any) -> int:
    """Returns the bytes of an answer as Ray serializes it: arrays apart from the rest, uncopied."""
    buffers: list[Any] = []
    rest = cloudpickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
    return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)
