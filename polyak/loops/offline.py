"""Offline learning: gradient steps on minibatches of a dataset, without environments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from polyak.callbacks.callback import BaseCallback
from polyak.loops.training import engine_checks
from polyak.loops.updates import ModelUpdates, Schedules, Updates, asked_updates

CHUNK = 500
"""Gradient steps that are made and logged together."""


@dataclass
class OfflineLoop:
    """Makes gradient steps on a dataset; the clock counts gradient steps."""

    settings: Any
    """The model, whose hyper-parameters a program may change during training."""
    updates: Updates | ModelUpdates
    """Makes gradient steps."""
    schedules: Schedules
    """Schedules of the learning rate and other hyper-parameters."""
    normalisation: Any
    """The normalisation of replayed experience."""
    between: tuple[Callable[[], None], ...]
    """Called after each iteration."""
    callback: BaseCallback
    """Called after every gradient step; may stop training."""
    dump_logs: Callable[[], None]
    """Writes a table."""
    log_interval: int | None
    """Chunks between two tables."""

    @classmethod
    def of(cls, model: Any, callback: BaseCallback, log_interval: int | None) -> Self:
        """Creates the loop of a model that learns from a dataset only."""
        known = model.schedules, model.normalisation, engine_checks(model), callback, model.dump_logs, log_interval
        return cls(model, asked_updates(model), *known)

    def iterate(self) -> bool:
        """Make some gradient steps. Returns False if a callback stops training."""
        settings, updates, clock = self.settings, self.updates, self.updates.clock
        alone = self.callback.is_idle and self.schedules.stand_still
        steps = min(CHUNK - clock.steps % CHUNK, clock.total - clock.steps) if alone else 1
        replay = settings.batch_size, settings.gamma, settings.dataset_share, self.normalisation.replay
        with updates.split.update:
            updates.make(steps, *replay)
        clock.steps += steps
        clock.tick()
        chunks, rest = divmod(clock.steps, CHUNK)
        if self.log_interval is not None and rest == 0 and chunks % self.log_interval == 0:
            self.dump_logs()
        if not (self.callback.is_idle or self.callback.on_step()):  # the table comes before files that callbacks save
            return False
        for check in self.between:
            check()
        return True
