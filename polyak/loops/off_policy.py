"""Off-policy learning: act and store, then draw minibatches and learn from them."""

from contextlib import AbstractContextManager
from typing import Any

from polyak.checkpoint.collection import Collection
from polyak.loops.clock import Clock
from polyak.loops.collector import Collector
from polyak.loops.updates import Updates


class OffPolicyLoop:
    """Collects series of steps into a memory and makes the gradient steps that are due after each.

    Args:
        settings: the hyper-parameters, which may change meanwhile.
        clock: of the training.
        collector: where experience comes from.
        updates: how it is learned from.
    """

    def __init__(self, settings: Any, clock: Clock, collector: Collector, updates: Updates, log_interval: int | None) -> None:
        self.settings, self.clock, self.collector, self.updates = settings, clock, collector, updates
        self.log_interval = log_interval
        self.store = updates.memory.own.record

    def run(self) -> None:
        """Until the clock says that it is over, or a callback asks to stop."""
        while self.clock.steps < self.clock.total and self.iterate():
            self.settings.check_iteration()

    def iterate(self) -> bool:
        """One series of steps, and what is learned after it. False: a callback asked to stop."""
        settings = self.settings
        series = self.collector.collect(settings.train_freq, self.store, self.after_step)
        if series is None:
            return False
        if (due := self.due(series)) > 0:
            with settings.time_of.update:
                self.updates.make(due, settings.batch_size, settings.gamma, settings.dataset_share, settings.normalizer)
        return True

    def due(self, series: Collection) -> int:
        """Gradient steps to make after a series: none before there is enough to learn from."""
        settings = self.settings
        if self.clock.steps - settings.empty_at <= settings.learning_starts or not self.updates.memory.can_sample():
            return 0
        return settings.gradient_steps if settings.gradient_steps >= 0 else series.steps * self.collector.n_envs

    def after_step(self, ended: int) -> None:
        """Count the episodes that ended in a step, each of which may be one to log after."""
        self.settings.on_step()
        for _ in range(ended):
            self.clock.episodes += 1
            if self.log_interval is not None and self.clock.episodes % self.log_interval == 0:
                self.settings.dump_logs()
