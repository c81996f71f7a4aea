"""Collecting by runners elsewhere, whose rollouts may come whole."""

from collections.abc import Callable, Iterator
from typing import Any

from polyak.checkpoint.collection import Collection
from polyak.distributed.runners import RunnerGroup
from polyak.experience.step import Step
from polyak.loops.collector import Collector, Wanted


class GroupCollector(Collector):
    """Has runners make as many steps at once as are sure to follow, and takes the columns of a rollout as they are,
    where nothing wants to see each step."""

    runner: RunnerGroup
    whole = False
    """Whether rollouts are stored, and rewards and all else come with the steps."""

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
            chunk = self.runner.fetch()
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

    def _noted(self, chunk: Any) -> Iterator[tuple[int, Step]]:
        """The steps in which episodes ended, whose statistics are kept."""
        for end in chunk.ends:
            step = self.runner.peek(end.step)
            self.statistics.note(step.episodes)
            yield end.step, step
