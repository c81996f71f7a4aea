"""Collecting by runners elsewhere, whose rollouts may come whole."""

from collections.abc import Callable, Iterator
from typing import Any

from polyak.checkpoint.collection import Collection
from polyak.distributed.runners import RunnerGroup
from polyak.distributed.unrolls import RolloutElsewhere
from polyak.experience.step import Step
from polyak.loops.collector import Collector, Wanted


class GroupCollector(Collector):
    """Has runners make as many steps at once as are sure to follow, and takes the columns of a rollout as they are,
    where nothing wants to see each step."""

    runner: RunnerGroup
    whole = False
    """Whether rollouts are stored, and rewards and all else come with the steps."""
    rows_stay: Callable[[], Any] = staticmethod(lambda: None)
    """Returns what makes a rollout buffer where learners elsewhere fetch the rows, which need not come here then;
    ``None``: they must. Nothing completes such a rollout here."""

    def prepare(self, wanted: Wanted, series: Collection, restart: bool = True) -> None:
        super().prepare(wanted, series, restart)
        whole = Collection() if self.runner.in_advance else series
        self.runner.plan(wanted.missing(whole), wanted)

    def collect(
        self,
        wanted: Wanted,
        into: Any,
        after: tuple[Callable[[int], None], ...] = (),
        complete: tuple[Callable[[], None], ...] = (),
    ) -> Collection | None:
        plain = self.whole and into.adopts and self.callback.is_idle and self.clock.series is None
        if not (plain and self.runner.is_used_up):
            return super().collect(wanted, into, after, complete)
        series = self._begin(wanted)
        try:
            self.callback.on_rollout_start()
            self.actor.use(self.policy())
            if (recipe := self.rows_stay()) is None or not self._left(recipe, into, series):
                chunk = self.runner.fetch() if self.runner.is_used_up else self.runner.fetched
                series.steps = len(chunk.infos)
                self.clock.steps += series.steps * self.n_envs
                into.adopt(chunk.rows, chunk.seen, self._noted(chunk))
                self.runner.pass_over()
                for task in complete:
                    task()
            self.callback.on_rollout_end()
        finally:
            self.clock.series = None
        return series

    def _left(self, recipe: Any, into: Any, series: Collection) -> bool:
        """Whether a rollout is one whose rows are elsewhere."""
        received = self.runner.leave()
        if not received.headings:
            return False
        series.steps = received.steps
        self.clock.steps += series.steps * self.n_envs
        for end in sorted((end for one in received.headings for end in one.ends), key=lambda end: end.step):
            self.statistics.note(end.episodes)
        into.buffer.leave(RolloutElsewhere(recipe, received.weights, received.chunks))
        return True

    def _noted(self, chunk: Any) -> Iterator[tuple[int, Step]]:
        """The steps in which episodes ended, whose statistics are kept."""
        for end in chunk.ends:
            step = self.runner.peek(end.step)
            self.statistics.note(step.episodes)
            yield end.step, step
