"""Off-policy learning: act and store, then draw minibatches and learn from them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from polyak.checkpoint.collection import Collection
from polyak.data.step import Step
from polyak.envs.wrappers.layers import frozen
from polyak.loops.collector import Collector, Into
from polyak.loops.hooks import ModelUpdates
from polyak.loops.updates import Updates


@dataclass
class OffPolicyLoop:
    """Collects a series of steps, then makes the gradient steps that are due; again and again."""

    settings: Any
    """The hyper-parameters, which a program may change meanwhile."""
    collector: Collector
    """Where experience comes from."""
    store: Into
    """Where it goes to."""
    updates: Updates | ModelUpdates
    """How it is learned from."""
    normalisation: Any
    """Of what is replayed."""
    after_step: tuple[Callable[[], None], ...]
    """Called after each step of the environments that is stored."""
    between: tuple[Callable[[], None], ...]
    """Called after each series and its updates."""
    dump_logs: Callable[[], None]
    """Writes a table."""
    log_interval: int | None
    """Episodes between two tables."""

    def iterate(self) -> bool:
        """A series of steps, and the gradient steps that are due. False: a callback asked to stop."""
        settings, updates, clock = self.settings, self.updates, self.updates.clock
        memory = updates.memory
        if clock.series is None:  # else a file has brought one that goes on
            memory.mend()
        memory.torn = True
        series = self.collector.collect(settings.train_freq, self.store, self.count)
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
        """Around gradient steps: the environments make the first step of the next series meanwhile. Minibatches are
        normalised with the statistics from before it."""
        known = self.normalisation.replay
        self.normalisation.replay = frozen(known)
        try:
            with self.collector.ahead(self.settings.train_freq), self.updates.split.update:
                yield
        finally:
            self.normalisation.replay = known

    def due(self, series: Collection) -> int:
        """Gradient steps to make after a series: none before there is enough to learn from."""
        settings = self.settings
        if not self.updates.memory.begun(self.updates.clock.steps, settings.learning_starts):
            return 0
        return settings.gradient_steps if settings.gradient_steps >= 0 else series.steps * self.collector.n_envs

    def count(self, ended: int) -> None:
        """A step is stored, in which so many episodes ended."""
        clock = self.updates.clock
        clock.tick()
        for task in self.after_step:
            task()
        for _ in range(ended):
            clock.episodes += 1
            if self.log_interval is not None and clock.episodes % self.log_interval == 0:
                self.dump_logs()


def shown(names: dict[str, Any], step: Step, series: Collection) -> dict[str, Any]:
    """What callbacks find in ``self.locals`` about a step under SB3's names, before it is stored."""
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
