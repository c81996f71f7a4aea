"""Gradient steps on minibatches of a memory."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyak.collecting.time_split import TimeSplit
from polyak.data.base import Normalizer
from polyak.data.replay_memory import ReplayMemory
from polyak.learning.host import LearnerHost
from polyak.learning.learner import Learner
from polyak.learning.replayed_sequences import sequence_errors
from polyak.logging.logger import Logger
from polyak.loops.clock import Clock
from polyak.loops.schedules import Schedules


class Updates:
    """Draws minibatches and lets a learner learn from them.

    Args:
        learner: learns.
        memory: what minibatches are drawn from.
        host: what the learner learns by.
        schedules: hyper-parameters that move.
        clock: counts gradient steps.
        logger: takes the means of what the learner measures.
        split: adds up the time.
    """

    def __init__(
        self,
        learner: Learner,
        memory: ReplayMemory,
        host: LearnerHost,
        schedules: Schedules,
        clock: Clock,
        logger: Logger,
        split: TimeSplit,
    ) -> None:
        self.learner, self.memory, self.host, self.schedules = learner, memory, host, schedules
        self.clock, self.logger, self.split = clock, logger, split

    def make(self, steps: int, rows: int, gamma: float, share: float | None, normalizer: Normalizer | None) -> None:
        """Some gradient steps.

        Args:
            steps: how many.
            rows: of each minibatch.
            gamma: discount of one step of the environments.
            share: of rows that come from a dataset: see :meth:`~polyak.data.replay_memory.ReplayMemory.batches`.
            normalizer: of observations and rewards.
        """
        learner, memory = self.learner, self.memory
        metrics: dict[str, list[Tensor]] = {}
        learn = learner.update if learner.fellows is None else learner.learn
        learner.policy.set_training_mode(True)
        self.logger.record("train/learning_rate", self.schedules.follow(learner, self.clock.remaining))
        memory.prioritized.anneal(1 - self.clock.remaining)
        batches = memory.batches(rows, gamma, steps, share, normalizer, learner.gathers_late)
        with self.split.update:
            for batch, indices in self.split.sample.timing(batches):
                update = learn(batch)
                if indices is not None and update.td_error is not None:
                    memory.prioritized.update_priorities(indices, sequence_errors(update.td_error, len(indices)))
                for name, value in update.metrics.items():
                    metrics.setdefault(name, []).append(value)
        self.clock.updates += steps
        self._record({name: values[0] if steps == 1 else torch.stack(values).mean() for name, values in metrics.items()})

    def _record(self, means: Mapping[str, Any]) -> None:
        self.logger.record("train/n_updates", self.clock.updates, exclude="tensorboard")
        for name, mean in means.items():
            self.logger.record(f"train/{name}", mean)
        self.host.watch(means)  # a loss that is not finite ends training
