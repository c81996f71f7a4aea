"""Gradient steps on minibatches of a memory."""

from collections.abc import Callable

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

Metrics = dict[str, list[Tensor]]
"""What a learner measured, by name, of each gradient step."""


class Updates:
    """Draws minibatches and lets a learner learn from them.

    Args:
        learner: learns.
        memory: what minibatches are drawn from.
        host: what the learner learns by.
        follow: brings hyper-parameters that move to the learner.
        clock: counts gradient steps.
        logger: takes the means of what the learner measures.
        split: adds up the time.
        after_each: called after each gradient step.
        watching: called with what some of them measured.
    """

    def __init__(
        self,
        learner: Learner,
        memory: ReplayMemory,
        host: LearnerHost,
        follow: Callable[[], None],
        clock: Clock,
        logger: Logger,
        split: TimeSplit,
        after_each: tuple[Callable[[], None], ...] = (),
        watching: tuple[Callable[[Metrics], None], ...] = (),
    ) -> None:
        self.learner, self.memory, self.host, self.follow = learner, memory, host, follow
        self.clock, self.logger, self.split = clock, logger, split
        self.after_each, self.watching = after_each, watching
        self.learn = learner.update if learner.fellows is None else learner.learn
        recurrence = learner.policy.recurrence
        self._together = 1 if recurrence is None else recurrence.length

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
        metrics: Metrics = {}
        learner.policy.set_training_mode(True)
        self.follow()
        memory.prioritized.anneal(1 - self.clock.remaining)
        rows = max(1, rows // self._together)  # or sequences
        batches = memory.batches(rows, gamma, steps, share, normalizer, learner.gathers_late)
        for batch, indices in self.split.sample.timing(batches):
            update = self.learn(batch)
            for task in self.after_each:
                task()
            if indices is not None and update.td_error is not None:
                memory.prioritized.update_priorities(indices, sequence_errors(update.td_error, len(indices)))
            for name, value in update.metrics.items():
                metrics.setdefault(name, []).append(value)
        self.clock.updates += steps
        self._record(metrics)

    def _record(self, metrics: Metrics) -> None:
        self.logger.record("train/n_updates", self.clock.updates, exclude="tensorboard")
        record_means(metrics, self.logger, self.host)
        for watch in self.watching:
            watch(metrics)


def record_means(metrics: Metrics, logger: Logger, host: LearnerHost) -> None:
    """Log the mean of each; a loss that is not finite ends training."""
    means = {name: values[0] if len(values) == 1 else torch.stack(values).mean() for name, values in metrics.items()}
    for name, mean in means.items():
        logger.record(f"train/{name}", mean)
    host.watch(means)
