"""What a training reports of its runners, learners and shards: counted as answers come, read when logs are written.

Under ``cluster/`` the logger gets, as far as there are such processes:

=========================  =============================================================================================
``runners``, ``nodes``     runners that are there, and on how many nodes
``runner_restarts``        how often one was replaced
``policy_lag``             updates that lay between the weights that acted and the rows that were taken, on average
``rows_per_second``        of all runners; ``rows_per_second_least`` of the slowest one
``megabytes_per_second``   of steps that came through this process, as they travel
``learners``               elsewhere; ``learner_restarts``, and ``learners_busy``: percent of the time in which they
                           made gradient steps, with what they waited for each other
``shards``                 of a replay buffer; ``shard_restarts``
``by_runner``              JSON: node, restarts and rows a second of each runner, in their order
=========================  =============================================================================================

Rates and lag are of the last ten seconds, or of the time since the table before these. Where the time of this process
goes is under ``time/``.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import numpy as np

from polyak.distributed.ray_workers import Workers, feed

if TYPE_CHECKING:
    from polyak.distributed.learners import LearnerGroup
    from polyak.distributed.runner_process import Chunk
    from polyak.distributed.runners import RemoteEnvs
    from polyak.distributed.shards import ShardedReplay
    from polyak.logging.logger import Logger

BY_RUNNER = "cluster/by_runner"
SPAN = 10.0
"""Seconds of which rates are, at least."""
_TEXTS = ("stdout", "log", "tensorboard")
"""Formats that have no place for a table."""


class Place(NamedTuple):
    """Where a runner is."""

    process: int
    node: str


class Flow(NamedTuple):
    """What came from runners in a time."""

    seconds: float
    bytes: float
    lag: float | None
    """Updates, the mean of all rows; ``None``: there are none."""
    rows: np.ndarray
    """Of each runner."""
    fresh: np.ndarray
    """The same since the last reading."""


class Traffic:
    """Counts what comes from runners.

    What a row takes on its way is measured once for each reading, of what comes first.

    Args:
        runners: how many.
    """

    def __init__(self, runners: int) -> None:
        self._total = np.zeros(4 + runners)
        """When it was read, bytes, rows whose age is known, their ages together, rows of each runner."""
        self._total[0] = time.monotonic()
        self._read = deque([self._total.copy()])
        self._row_bytes = 0.0

    def note(self, runner: int, chunk: Chunk) -> None:
        """Count what one has made of a request."""
        steps, envs = chunk.columns.lead
        rows = steps * envs
        self._row_bytes = self._row_bytes or _bytes_of(chunk) / max(rows, 1)
        self._total[4 + runner] += rows
        self._total[1] += rows * self._row_bytes

    def note_lag(self, rows: int, updates: float) -> None:
        """Count rows that were taken when the weights that acted were so many updates old."""
        self._total[2:4] += rows, rows * updates

    def read(self) -> Flow:
        """What came in the last :data:`SPAN` seconds, or since the reading before these."""
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


def _bytes_of(chunk: Chunk) -> int:
    """Of a chunk as Ray writes it: arrays beside the rest, uncopied."""
    buffers: list[Any] = []
    rest = cloudpickle.dumps(chunk, protocol=5, buffer_callback=buffers.append)
    return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)


def record(
    logger: Logger, remote: RemoteEnvs | None, learners: LearnerGroup | None, shards: ShardedReplay | None
) -> None:
    """Log what there is to say of a model's processes.

    Args:
        logger: of the model.
        remote: its environments, if runners step them.
        learners: its learners, if there are several.
        shards: its replay buffer, if that is elsewhere.
    """
    values: dict[str, float] = {}
    if remote is not None:
        values |= _of_runners(logger, remote)
    if learners is not None:
        values |= _of_learners(learners)
    if shards is not None:
        values |= _of_shards(shards)
    for name, value in values.items():
        logger.record(f"cluster/{name}", value)


def _of_runners(logger: Logger, remote: RemoteEnvs) -> dict[str, float]:
    flow, here = remote.traffic.read(), [one for one in range(remote.n_runners) if one not in remote.absent]
    speeds = (flow.rows / flow.seconds).round(1).tolist()
    nodes, restarts = [place.node for place in remote.places], remote.generation
    table = [
        {"node": node if runner in here else "", "restarts": restarts[runner], "rows_per_second": speeds[runner]}
        for runner, node in enumerate(nodes)
    ]
    logger.record(BY_RUNNER, json.dumps(table), exclude=_TEXTS)
    values = {
        "runners": len(here),
        "nodes": len({nodes[runner] for runner in here}),
        "runner_restarts": remote.workers.restarts,
        "rows_per_second": sum(speeds),
        "rows_per_second_least": min((speeds[runner] for runner in here), default=0.0),
        "megabytes_per_second": flow.bytes / flow.seconds / 1e6,
    }
    if flow.lag is not None:
        values["policy_lag"] = flow.lag
    if isinstance(remote.workers, Workers):
        for name, value in values.items():
            feed("Gauge", f"polyak_{name}", value)
        for runner, (node, rows) in enumerate(zip(nodes, flow.fresh.tolist(), strict=True)):
            feed("Counter", "polyak_rows", rows, runner=str(runner + 1), node=node)
    return values


def _of_learners(learners: LearnerGroup) -> dict[str, float]:
    restarts, busy = learners.restarts, learners.worked.percent()
    return {"learners": learners.size - 1, "learner_restarts": restarts, "learners_busy": busy}


def _of_shards(shards: ShardedReplay) -> dict[str, float]:
    return {"shards": len(shards.processes), "shard_restarts": shards.workers.restarts}
