"""Gradient steps on minibatches of a memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyak.collecting.time_split import TimeSplit
from polyak.data.replay_memory import ReplayMemory
from polyak.learning.host import LearnerHost
from polyak.learning.learner import Learner
from polyak.learning.replayed_sequences import sequence_errors
from polyak.logging.logger import Logger
from polyak.loops.clock import Clock


class Updates:
    """Draws minibatches and lets a learner learn from them.

    Args:
        learner: learns.
        memory: what minibatches are drawn from.
        host: what the learner learns by.
        clock: counts gradient steps.
        logger: takes the means of what the learner measures.
        split: adds up how long drawing takes.
        present: the hyper-parameters that follow a schedule, at this moment; called before each update.
    """

    def __init__(
        self,
        learner: Learner,
        memory: ReplayMemory,
        host: LearnerHost,
        clock: Clock,
        logger: Logger,
        split: TimeSplit,
        present: Callable[[], None],
    ) -> None:
        self.learner, self.memory, self.host, self.clock = learner, memory, host, clock
        self.logger, self._drawing, self._present = logger, split.sample, present

    def make(self, steps: int, rows: int, gamma: float, share: float | None, normalizer: Any) -> None:
        """Some gradient steps.

        Args:
            steps: how many.
            rows: of each minibatch.
            gamma: discount of one step of the environments.
            share: of rows that come from a dataset: see :meth:`~polyak.data.replay_memory.ReplayMemory.batches`.
            normalizer: of observations and rewards.
        """
        learner, memory = self.learner, self.memory
        learner.policy.set_training_mode(True)
        self._present()
        memory.prioritized.anneal(1 - self.clock.remaining)
        metrics: dict[str, list[Tensor]] = {}
        batches = memory.batches(rows, gamma, steps, share, normalizer, learner.gathers_late)
        for batch, indices in self._drawing.timing(batches):
            update = learner.learn(batch)
            if indices is not None and update.td_error is not None:
                memory.prioritized.update_priorities(indices, sequence_errors(update.td_error, len(indices)))
            for name, value in update.metrics.items():
                metrics.setdefault(name, []).append(value)
        self.clock.updates += steps
        self._record(metrics)

    def _record(self, metrics: dict[str, list[Tensor]]) -> None:
        """Log the mean of each metric; a loss that is not finite ends training."""
        means = {name: v[0] if len(v) == 1 else torch.stack(v).mean() for name, v in metrics.items()}
        values = {"n_updates": self.clock.updates, **means}
        for name, value in values.items():
            self.logger.record(f"train/{name}", value, exclude="tensorboard" if name == "n_updates" else None)
        self.host.watch(means)
