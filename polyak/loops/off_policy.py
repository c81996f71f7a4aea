"""Off-policy learning: act and store transitions, then draw minibatches and make gradient steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import Self

from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.collection import Collection
from polyak.collecting.runner import on_host
from polyak.distributed.runners import RunnerGroup
from polyak.envs.wrappers.layers import frozen
from polyak.experience.step import Step
from polyak.loops.clock import read_episodes
from polyak.loops.collector import Collector, Into, Wanted
from polyak.loops.group_collector import GroupCollector
from polyak.loops.offline import OfflineLoop
from polyak.loops.training import Loop, engine_checks, tasks
from polyak.loops.updates import ModelUpdates, Updates, asked_updates

STEPS_BETWEEN_READS = 200
"""Steps between two reads of the episode statistics of environments in tensors."""


@dataclass
class OffPolicyLoop:
    """Collects a series of steps, then makes the gradient steps that are due; repeatedly."""

    settings: Any
    """The model, whose hyper-parameters a program may change during training."""
    collector: Collector
    """The source of experience."""
    store: Into
    """The storage of experience."""
    updates: Updates | ModelUpdates
    """Makes gradient steps."""
    normalisation: Any
    """The normalisation of replayed experience."""
    after_step: tuple[Callable[[], None], ...]
    """Called after each stored step of the environments."""
    between: tuple[Callable[[], None], ...]
    """Called after each series and its gradient steps."""
    dump_logs: Callable[[], None]
    """Writes a table."""
    log_interval: int | None
    """Episodes between two tables."""
    wanted: Callable[[], Wanted]
    """Returns the length of the next series."""
    tick: Callable[[], None]
    """Advances schedules."""

    @classmethod
    def of(cls, model: Any, callback: BaseCallback, log_interval: int | None) -> Loop:
        """Creates the loop of a model with a replay memory; an offline model gets an :class:`OfflineLoop`."""
        if model.learns_offline:
            return OfflineLoop.of(model, callback, log_interval)
        return cls.acting(model, callback, log_interval)

    @classmethod
    def acting(cls, model: Any, callback: BaseCallback, log_interval: int | None) -> Self:
        """Creates the loop of a model that acts in environments."""
        names = model._callback_locals(
            callback=callback,
            train_freq=model.train_freq,
            replay_buffer=model.memory.own,
            log_interval=log_interval,
            learning_starts=model.learning_starts,
            action_noise=model.action_noise,
        )
        kind = GroupCollector if isinstance(model.runner, RunnerGroup) else Collector
        collector = kind(
            model.runner,
            model._progress,
            model.clock,
            model.statistics,
            callback,
            partial(shown, names),
            partial(getattr, model, "policy"),
            model._start_episodes,
        )
        after_step = tasks(model, "after_step")
        if model.in_tensors:
            collector.shown = lambda step, series: shown(names, on_host(step), series)
            after_step += (partial(read_now_and_then, model, log_interval),)
        return cls(
            model,
            collector,
            storage_of(model),
            asked_updates(model),
            model.normalisation,
            after_step,
            engine_checks(model),
            model.dump_logs,
            log_interval,
            partial(getattr, model, "train_freq"),
            model.clock.tick,
        )

    def iterate(self) -> bool:
        """Collect a series of steps and make the gradient steps that are due. Returns False if a callback stops
        training."""
        settings, updates, clock = self.settings, self.updates, self.updates.clock
        memory = updates.memory
        if clock.series is None:  # otherwise the series restored from a file is continued
            memory.mend()
        memory.torn = True
        series = self.collector.collect(self.wanted(), self.store, (self.count,))
        if series is None:
            return False
        memory.torn = False
        if (steps := self.due(series)) > 0:
            with self.ahead() if settings.overlap and clock.steps < clock.total else updates.split.update:
                replay = settings.batch_size, settings.gamma, settings.dataset_share, self.normalisation.replay
                updates.make(steps, *replay)
        for check in self.between:
            check()
        return True

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Let the environments make the first step of the next series during gradient steps. Minibatches are
        normalised with the statistics before that step."""
        known = self.normalisation.replay
        self.normalisation.replay = frozen(known)
        try:
            with self.collector.ahead(self.wanted()), self.updates.split.update:
                yield
        finally:
            self.normalisation.replay = known

    def due(self, series: Collection) -> int:
        """Returns the gradient steps to make after a series: 0 before ``learning_starts``."""
        settings = self.settings
        if not self.updates.memory.begun(self.updates.clock.steps, settings.learning_starts):
            return 0
        return settings.gradient_steps if settings.gradient_steps >= 0 else series.steps * self.collector.n_envs

    def count(self, ended: int) -> None:
        """Update schedules, counters and logs after a step is stored in which ``ended`` episodes ended."""
        clock = self.updates.clock
        self.tick()
        for task in self.after_step:
            task()
        for _ in range(ended):
            clock.episodes += 1
            if self.log_interval is not None and clock.episodes % self.log_interval == 0:
                self.dump_logs()


def shown(names: dict[str, Any], step: Step, series: Collection) -> dict[str, Any]:
    """Returns a step under SB3's names for callbacks' ``self.locals``, before it is stored."""
    return {
        **names,
        "actions": step.env_actions,
        "buffer_actions": step.actions,
        "rewards": step.rewards,
        "dones": step.dones,
        "infos": list(step.infos),
        "new_obs": step.new_obs,
        "num_collected_steps": series.steps,
        "num_collected_episodes": series.episodes,
    }


def read_now_and_then(model: Any, log_interval: int | None) -> None:
    """Count the episodes that have ended on the device since the last read; the host waits for the device."""
    if model.runner.steps % STEPS_BETWEEN_READS:
        return
    clock = model.clock
    before = clock.episodes
    read_episodes(model)
    if log_interval is not None and clock.episodes // log_interval > before // log_interval:
        model.dump_logs()


class Prepared:
    """Stores steps after the model's conversions.

    Args:
        memory: stores the converted steps.
        functions: conversions of a step, applied in order.
    """

    def __init__(self, memory: Into, functions: tuple[Callable[[Step], Step], ...]) -> None:
        self.memory, self.functions = memory, functions

    def record(self, step: Step) -> None:
        """Convert and store a step of the environments."""
        for function in self.functions:
            step = function(step)
        self.memory.record(step)


def storage_of(model: Any) -> Into:
    """Returns the storage of a model's steps."""
    functions = tasks(model, "storing")
    return Prepared(model.memory, functions) if functions else model.memory
