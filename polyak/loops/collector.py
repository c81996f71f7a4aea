"""Collection: series of environment steps, each shown to callbacks and stored."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.collection import Collection
from polyak.collecting.exploration import ActingProgress
from polyak.collecting.runner import Runner
from polyak.experience.step import Step
from polyak.loops.clock import Clock, EpisodeStatistics, Patience


class Wanted(Protocol):
    """The length of a series."""

    def is_complete(self, series: Collection) -> bool:
        """Whether the series is long enough."""

    def missing(self, series: Collection) -> int:
        """Returns a lower bound of the steps that the series still lacks."""


class Into(Protocol):
    """The storage of experience: a replay memory, or a rollout."""

    def record(self, step: Step) -> None:
        """Store a step that callbacks have accepted."""


class Collector:
    """Steps environments with the actions of an actor.

    Args:
        runner: acts and steps.
        progress: counters that exploration schedules read.
        clock: advanced at each step.
        statistics: updated when episodes end.
        callback: called after every step; may stop training.
        shown: returns the callbacks' ``locals`` for a step and its series.
        policy: returns the behaviour policy, which a program may have exchanged.
        restart: begins new episodes after another program has reset the environments.

    Attributes:
        before_series: called before each series.
        before_step: called before each step, for example by a normaliser that counts the current observations.
    """

    def __init__(
        self,
        runner: Runner,
        progress: ActingProgress,
        clock: Clock,
        statistics: EpisodeStatistics,
        callback: BaseCallback,
        shown: Callable[[Step, Collection], dict[str, Any]],
        policy: Callable[[], Any],
        restart: Callable[[], None],
    ) -> None:
        self.runner: Any = runner
        self.actor: Any = runner.actor
        self.progress, self.clock, self.statistics = progress, clock, statistics
        self.callback, self.shown, self.policy, self._restart = callback, shown, policy, restart
        self.before_series: tuple[Callable[[], None], ...] = ()
        self.before_step: tuple[Callable[[], None], ...] = ()
        self.n_envs = runner.env.num_envs
        self.patience = Patience(clock)

    def collect(
        self,
        wanted: Wanted,
        into: Into,
        after: tuple[Callable[[int], None], ...] = (),
        complete: tuple[Callable[[], None], ...] = (),
    ) -> Collection | None:
        """Make a series of steps, or finish the one restored from a file.

        Args:
            wanted: the length of the series.
            into: stores each step that callbacks have accepted.
            after: called after each step is stored, with the number of episodes that ended in it.
            complete: called at the end, before the callbacks' ``on_rollout_end``.

        Returns:
            the series; ``None`` if a callback stops training.
        """
        series = self._begin(wanted)
        try:
            self.callback.on_rollout_start()
            if series.pending is not None:
                self._keep(series, into, after)
            while not wanted.is_complete(series):
                self.progress.steps = self.clock.steps
                self.actor.use(self.policy())
                for task in self.before_step:
                    task()
                step = series.pending = self.runner.step()
                series.steps += 1
                self.clock.steps += self.n_envs
                if self._shows:
                    self.callback.update_locals(self.shown(step, series))
                if self._asks and not self.callback.on_step():
                    return None
                self._keep(series, into, after)
            for task in complete:
                task()
            self.callback.on_rollout_end()
        finally:
            self.clock.series = None
        return series

    def _begin(self, wanted: Wanted) -> Collection:
        for task in self.before_series:
            task()
        clock, is_ahead = self.clock, self.runner.is_ahead
        if self.runner.interrupted and not is_ahead:
            self._restart()
        restart = clock.series is None and not is_ahead
        clock.series = series = clock.series or Collection()
        series.wait = self.patience.wait
        self.prepare(wanted, series, restart)
        self._asks, self._shows = not self.callback.is_idle, self.callback.needs_locals
        return series

    def prepare(self, wanted: Wanted, series: Collection, restart: bool = True) -> None:
        """Prepare actor and exploration for a series."""
        self.actor.use(self.policy())
        self.actor.begin(self.n_envs, restart)
        self.progress.steps = self.clock.steps

    @contextmanager
    def ahead(self, wanted: Wanted) -> Iterator[None]:
        """Let the environments make the first step of the next series while the block runs. Acting draws all its
        random numbers before it."""
        self.prepare(wanted, Collection())
        with self.runner.ahead():
            yield

    def _keep(self, series: Collection, into: Into, after: tuple[Callable[[int], None], ...]) -> None:
        step: Any = series.pending
        if step.episodes:
            self.statistics.note(step.episodes)
        if self.runner.interrupted:  # a callback has evaluated in the same environments
            step = self.runner.cut(step)
        with self.runner.split.copy:
            into.record(step)
        ended = int(step.dones.sum()) if step.ended else 0
        for task in after:
            task(ended)
        series.episodes += ended
        series.pending = None
