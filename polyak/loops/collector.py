"""Collecting: series of steps of the environments, each shown to callbacks and handed on."""

from collections.abc import Callable, Mapping
from typing import Any

from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.collection import Collection
from polyak.collecting.runner import Runner
from polyak.collecting.train_freq import TrainFreq
from polyak.data.step import Step
from polyak.loops.clock import Clock
from polyak.loops.statistics import EpisodeStatistics


class Collector:
    """Steps environments as an actor chooses.

    Args:
        runner: acts and steps.
        clock: moves with each step.
        statistics: of the episodes that end.
        callback: asked after every step whether to continue.
        shown: what callbacks find in their ``locals``, by a step and the series that it is in.
        prepare: called before a series, with whether it is a new one: the actor takes up what has changed.
        n_envs: environments.
    """

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        statistics: EpisodeStatistics,
        callback: BaseCallback,
        shown: Callable[[Step, Collection], Mapping[str, Any]],
        prepare: Callable[[bool], None],
        n_envs: int,
    ) -> None:
        self.runner, self.clock, self.statistics, self.callback = runner, clock, statistics, callback
        self._shown, self._prepare, self.n_envs = shown, prepare, n_envs

    def collect(self, wanted: TrainFreq, into: Callable[[Step], None], after: Callable[[int], None]) -> Collection | None:
        """Make a series of steps, or finish the one that a file has brought.

        Args:
            wanted: how long it is.
            into: takes each step that callbacks have let pass.
            after: called when a step is stored, with the number of episodes that ended in it.

        Returns:
            the series; ``None``: a callback asked to stop.
        """
        series = self._begin(wanted)
        try:
            self.callback.on_rollout_start()
            if series.pending is not None:
                self._keep(series, series.pending, into, after)
            while not series.is_complete(wanted):
                step = self._step(series)
                if not self._may_go_on(step, series):
                    return None
                self._keep(series, step, into, after)
            self.callback.on_rollout_end()
        finally:
            self.clock.series = None
        return series

    def _begin(self, wanted: TrainFreq) -> Collection:
        clock = self.clock
        self._prepare(clock.series is None and not self.runner.is_ahead)
        clock.series = series = Collection() if clock.series is None else clock.series
        self.runner.plan(series.missing(wanted))
        self._asks, self._shows = not self.callback.is_idle, self.callback.needs_locals
        return series

    def _step(self, series: Collection) -> Step:
        step = series.pending = self.runner.step()
        series.steps += 1
        self.clock.steps += self.n_envs
        return step

    def _may_go_on(self, step: Step, series: Collection) -> bool:
        if self._shows:
            self.callback.update_locals(self._shown(step, series))
        return not self._asks or self.callback.on_step()

    def _keep(self, series: Collection, step: Step, into: Callable[[Step], None], after: Callable[[int], None]) -> None:
        if step.episodes:
            self.statistics.note(step.episodes)
        if self.runner.interrupted:  # a callback has evaluated in the same environments
            step = self.runner.cut(step)
        with self.runner.split.copy:
            into(step)
        self.clock.tick()
        ended = int(step.dones.sum()) if step.ended else 0
        after(ended)
        series.episodes += ended
        series.pending = None
