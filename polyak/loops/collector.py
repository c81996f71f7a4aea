"""Collecting: series of steps of the environments, each shown to callbacks and handed on."""

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
    """How long a series is."""

    def is_complete(self, series: Collection) -> bool:
        """Whether it is as long as that."""

    def missing(self, series: Collection) -> int:
        """Steps that are sure to follow before it is."""


class Into(Protocol):
    """Where experience goes: a memory, or a rollout."""

    def record(self, step: Step) -> None:
        """Take a step of the environments that callbacks have let pass."""


class Collector:
    """Steps environments as an actor chooses.

    Args:
        runner: acts and steps.
        progress: numbers that exploration goes by.
        clock: moves with each step.
        statistics: of the episodes that end.
        callback: asked after every step whether to continue.
        shown: what callbacks find in their ``locals``, by a step and the series that it is in.
        policy: gives the policy that acts, which a program may have exchanged.
        restart: begins new episodes, where another program has reset the environments.

    Attributes:
        before_series: called before each series.
        before_step: called before each step, such as a normaliser that sees the observations in hand.
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
        """Make a series of steps, or finish the one that a file has brought.

        Args:
            wanted: how long it is.
            into: takes each step that callbacks have let pass.
            after: called when a step is stored, with the number of episodes that ended in it.
            complete: called at the end, before callbacks are.

        Returns:
            the series; ``None``: a callback asked to stop.
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
        """Make ready to act."""
        self.actor.use(self.policy())
        self.actor.begin(self.n_envs, restart)
        self.progress.steps = self.clock.steps

    @contextmanager
    def ahead(self, wanted: Wanted) -> Iterator[None]:
        """While the block runs, the environments make the first step of the next series. All random numbers of acting
        are drawn before it."""
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
