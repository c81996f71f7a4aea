"""Hyper-parameters of a learner that move with the progress of a training."""

from collections.abc import Mapping

from polyak.learning.learner import Learner
from polyak.learning.part_rates import set_part_rates
from polyak.logging.logger import Logger
from polyak.loops.clock import Clock
from polyak.schedules import Schedule, is_constant


class Schedules:
    """Brings to a learner what changes from update to update. What stays the same is brought when it is set.

    Args:
        rate: the learning rate by the remaining progress.
    """

    def __init__(self, rate: Schedule) -> None:
        self.rate = rate
        self.moving: dict[str, Schedule] = {}
        """Hyper-parameters that follow a schedule, besides the learning rate."""
        self.part_rates: Mapping[str, float | Schedule] = {}
        """Learning rates of parts that have their own."""

    @property
    def stand_still(self) -> bool:
        """Whether nothing moves, so that many updates may be made at once."""
        return all(map(is_constant, (self.rate, *self.moving.values())))

    def follow(self, learner: Learner, clock: Clock, logger: Logger) -> None:
        """Set the values of this moment."""
        remaining = clock.remaining
        learner.adopt_optimizers()
        rate = self.rate(remaining)
        learner.set(learning_rate=rate, **{name: schedule(remaining) for name, schedule in self.moving.items()})
        set_part_rates(learner, self.part_rates, remaining)
        logger.record("train/learning_rate", rate)
