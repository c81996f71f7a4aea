"""Statistics of runners, learners and replay shards, counted as answers arrive and read when logs are written.

The logger gets the following under ``cluster/``, as far as there are such processes:

=========================  =============================================================================================
``runners``, ``nodes`` present runners, and their number of nodes
``runner_restarts`` number of replacements
``policy_lag`` mean number of updates between the weights that acted and the update on their rows
``rows_per_second``        of all runners; ``rows_per_second_least`` of the slowest one
``megabytes_per_second`` of steps that came through this process, as transferred
``learners``               elsewhere; ``learner_restarts``, and ``learners_busy``: percent of the time in which they
                           made gradient steps, with what they waited for each other
``shards``                 of a replay buffer; ``shard_restarts``
``by_runner``              JSON: node, restarts and rows a second of each runner, in their order
=========================  =============================================================================================

Rates and lag cover the last ten seconds, or the time since the previous table. ``time/`` has the time split of this
process.
"""

import json
from typing import Any, ClassVar

from polyak.distributed.learners import LearnerGroup
from polyak.distributed.ray_workers import Workers, feed
from polyak.distributed.runners import RemoteEnvs, envs_of_runners
from polyak.distributed.shards import ShardedReplay
from polyak.logging.logger import Logger
from polyak.parts.part import Part

BY_RUNNER = "cluster/by_runner"
_TEXTS = ("stdout", "log", "tensorboard")
"""Formats without support for a table."""


def record_processes(model: Any) -> None:
    """Records the statistics of runners, learners and shards, as far as a model has them."""
    values: dict[str, float] = {}
    if (remote := envs_of_runners(model.env)) is not None:
        values |= _of_runners(model.logger, remote)
    if model._learners is not None:
        values |= _of_learners(model._learners)
    if isinstance(memory := getattr(model, "replay_buffer", None), ShardedReplay):
        values |= _of_shards(memory)
    for name, value in values.items():
        model.logger.record(f"cluster/{name}", value)


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


class Cluster(Part):
    """Part of models with runners, learners or shards in other processes."""

    logs: ClassVar = (record_processes,)
