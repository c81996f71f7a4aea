"""Collection by remote runners, which may deliver whole rollouts."""

from collections.abc import Callable, Iterator
from typing import Any

from polyak.checkpoint.collection import Collection
from polyak.distributed.runners import RunnerGroup
from polyak.distributed.unrolls import RolloutElsewhere
from polyak.experience.step import Step
from polyak.loops.collector import Collector, Wanted


class GroupCollector(Collector):
    """Lets runners make as many steps at once as are certain to follow, and takes the columns of a whole rollout if
    nothing reads single steps."""

    runner: RunnerGroup
    whole = False
    """Whether whole rollouts can be taken: rewards and all other columns are known at each step."""
    rows_stay: Callable[[], Any] = staticmethod(lambda: None)
    """Returns the factory of a rollout buffer if remote learners fetch the rows, which then stay remote; ``None`` if
    the rows must come here. No ``complete`` task runs for a remote rollout."""

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
        """Try to leave the rows of a rollout where they are. Returns whether this succeeded."""
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
        """Yields the steps in which episodes ended, after adding their statistics."""
        for end in chunk.ends:
            step = self.runner.peek(end.step)
            self.statistics.note(step.episodes)
            yield end.step, step
