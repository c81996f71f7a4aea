"""What a model's other processes add to its logs."""

from typing import Any, ClassVar

from polyak.distributed.metrics import record
from polyak.distributed.runners import envs_of_runners
from polyak.distributed.shards import ShardedReplay
from polyak.parts.part import Part


def log_processes(model: Any) -> None:
    """Records runners, learners and shards, as far as a model has them."""
    memory = getattr(model, "replay_buffer", None)
    shards = memory if isinstance(memory, ShardedReplay) else None
    record(model.logger, envs_of_runners(model.env), model._learners, shards)


class Cluster(Part):
    """Of models alone that have runners, learners or shards in other processes."""

    logs: ClassVar = (log_processes,)
