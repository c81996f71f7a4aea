"""Gradient steps on minibatches of a replay memory and on rollouts, and the learner's hyper-parameter schedules."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyak.collecting.time_split import TimeSplit
from polyak.experience.base_buffer import Normalizer
from polyak.experience.replay_memory import ReplayMemory
from polyak.learning.host import LearnerHost
from polyak.learning.learner import Learner, Update
from polyak.learning.part_rates import set_part_rate
from polyak.learning.replayed_sequences import sequence_errors
from polyak.logging.logger import Logger
from polyak.loops.clock import Clock
from polyak.loops.training import is_own, tasks
from polyak.schedules import Schedule, is_constant, value_of


class Schedules:
    """Sets a learner's scheduled hyper-parameters before updates. Constant ones are set once.

    Args:
        rate: the learning rate as a function of the remaining progress.
    """

    def __init__(self, rate: Schedule) -> None:
        self.moving: dict[str, Schedule] = {}
        """Scheduled hyper-parameters besides the learning rate."""
        self.part_rates: Mapping[str, float | Schedule] = {}
        """Learning rates of parts that have their own."""
        self.rate = rate

    @property
    def rate(self) -> Schedule:
        """The learning rate as a function of the remaining progress."""
        return self._rate

    @rate.setter
    def rate(self, rate: Schedule) -> None:
        self._rate = rate
        self._moving_rate = () if is_constant(rate) else (rate,)
        if not self._moving_rate:
            self.rate_now = value_of("learning_rate", rate, 1.0)

    @property
    def stand_still(self) -> bool:
        """Whether all schedules are constant, so that many updates may be made at once."""
        return all(map(is_constant, (self.rate, *self.moving.values())))

    def follow(self, learner: Learner, clock: Clock, logger: Logger) -> None:
        """Set the learner's hyper-parameters to their present values."""
        for schedule in self._moving_rate:
            self.rate_now = value_of("learning_rate", schedule, clock.remaining)
        learner.set(learning_rate=self.rate_now)
        for name, schedule in self.moving.items():
            learner.set(**{name: value_of(name, schedule, clock.remaining)})
        for name, rate in self.part_rates.items():
            set_part_rate(learner, name, rate, clock.remaining)
        logger.record("train/learning_rate", self.rate_now)


def following(model: Any) -> Callable[[], None]:
    """Returns the function that sets a learner's scheduled hyper-parameters, to be called before gradient steps."""
    model.renew_schedules()
    return partial(model.schedules.follow, model.learner, model.clock, model.logger)


Metrics = dict[str, list[Tensor]]
"""The learner's metrics, by name, one value per gradient step."""


class Updates:
    """Draws minibatches and makes gradient steps on them.

    Args:
        learner: computes losses and makes the steps.
        memory: the replay memory.
        host: runs the learner on its device and engine.
        follow: sets scheduled hyper-parameters.
        clock: counts gradient steps.
        logger: takes the means of the metrics.
        split: measures the time of each stage.
        after_each: called after each gradient step.
        watching: called with the metrics of all steps.
    """

    def __init__(
        self,
        learner: Learner,
        memory: ReplayMemory,
        host: LearnerHost,
        follow: Callable[[], None],
        clock: Clock,
        logger: Logger,
        split: TimeSplit,
        after_each: tuple[Callable[[], None], ...] = (),
        watching: tuple[Callable[[Metrics], None], ...] = (),
    ) -> None:
        self.learner, self.memory, self.host, self.follow = learner, memory, host, follow
        self.clock, self.logger, self.split = clock, logger, split
        self.after_each, self.watching = after_each, watching
        self.learn = learner.update if learner.fellows is None else learner.learn
        recurrence = learner.policy.recurrence
        self._together = 1 if recurrence is None else recurrence.length

    times = 1
    """Factor of the minibatch size if a gradient step is made of several minibatches."""

    def make(self, steps: int, rows: int, gamma: float, share: float | None, normalizer: Normalizer | None) -> None:
        """Make gradient steps.

        Args:
            steps: number of gradient steps.
            rows: batch size.
            gamma: discount of one step of the environments.
            share: of rows from a dataset: see :meth:`~polyak.experience.replay_memory.ReplayMemory.batches`.
            normalizer: of observations and rewards.
        """
        learner, memory = self.learner, self.memory
        metrics: Metrics = {}
        learner.policy.set_training_mode(True)
        self.follow()
        memory.prioritized.anneal(1 - self.clock.remaining)
        rows = max(1, self.times * rows // self._together)  # or sequences
        batches = memory.batches(rows, gamma, steps, share, normalizer, learner.gathers_late)
        for batch, indices in self.split.sample.timing(batches):
            update = self.learn(batch)
            for task in self.after_each:
                task()
            if indices is not None and update.td_error is not None:
                memory.prioritized.update_priorities(indices, sequence_errors(update.td_error, len(indices)))
            for name, value in update.metrics.items():
                metrics.setdefault(name, []).append(value)
        self.clock.updates += steps
        self.logger.record("train/n_updates", self.clock.updates, exclude="tensorboard")
        record_means(metrics, self.logger, self.host)
        for watch in self.watching:
            watch(metrics)


class ModelUpdates:
    """Makes gradient steps by the ``train`` method of a user's subclass.

    Args:
        model: has ``train``.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.memory, self.clock, self.split = model, model.memory, model.clock, model._split

    def make(self, steps: int, rows: int, *_: Any) -> None:
        """Make gradient steps on minibatches of ``rows`` rows."""
        self.model.train(gradient_steps=steps, batch_size=rows)


def updates_of(model: Any) -> Updates:
    """Creates the gradient steps on a model's replay memory."""
    after = tasks(model, "after_step") if model.learns_offline else ()
    known = (
        model.learner,
        model.memory,
        model.host,
        model._following(),
        model.clock,
        model.logger,
        model._split,
    )
    return Updates(*known, after, tasks(model, "watching"))


def asked_updates(model: Any) -> Any:
    """Creates the gradient steps on a model's replay memory, or by its own ``train`` if a user's subclass has one."""
    return ModelUpdates(model) if is_own(model, "train") else model.replay.updates()


def record_means(metrics: Mapping[str, list[Tensor]], logger: Logger, host: LearnerHost) -> None:
    """Log the mean of each metric; a loss that is not finite ends training."""
    means = {name: values[0] if len(values) == 1 else torch.stack(values).mean() for name, values in metrics.items()}
    for name, mean in means.items():
        logger.record(f"train/{name}", mean)
    host.watch(means)


Minibatches = Callable[[int | None], Any]
"""Returns the minibatches of one pass over a rollout, for the learner's ``update``. The argument is their size; None:
one minibatch of all rows."""


class Gained(NamedTuple):
    """The result of the gradient steps on one rollout."""

    metrics: dict[str, list[Tensor]]
    """The metrics to log."""
    updates: int
    """The increase of the update counter."""


def measured(updates: Iterable[Update]) -> Metrics:
    """Returns the metrics of gradient steps, by name; consumes the iterable."""
    metrics: Metrics = {}
    for update in updates:
        for name, value in update.metrics.items():
            metrics.setdefault(name, []).append(value)
    return metrics


@dataclass
class RolloutUpdates:
    """Makes gradient steps on one rollout after another."""

    learner: Learner
    """Computes losses and makes the steps."""
    lesson: Callable[[Minibatches], Gained]
    """Makes the gradient steps on a rollout's minibatches."""
    minibatches: Callable[[], Minibatches]
    """Returns the minibatches of the present rollout."""
    host: LearnerHost
    """Runs the learner on its device and engine."""
    follow: Callable[[], None]
    """Sets scheduled hyper-parameters."""
    clock: Clock
    """Counts updates."""
    logger: Logger
    """Takes the means of the metrics."""
    split: TimeSplit
    """Measures the time of each stage."""
    watching: tuple[Callable[[Gained], None], ...] = ()
    """Called with the result after it is logged."""
    explained: Callable[[Any, Any], Any] | None = None
    """Computes the explained variance of values and returns for the logs; ``None``: it is not logged."""

    def make(self, buffer: Any) -> None:
        """Learn from a rollout whose advantages are known."""
        self.learner.policy.set_training_mode(True)
        self.follow()
        outcome = self.lesson(partial(_timed, self.split, self.minibatches()))
        self.clock.updates += outcome.updates
        record_means(outcome.metrics, self.logger, self.host)
        if self.explained is not None:
            self.logger.record("train/explained_variance", self.explained(buffer.values, buffer.returns))
        self.logger.record("train/n_updates", self.clock.updates, exclude="tensorboard")
        if (log_std := getattr(self.learner.policy, "log_std", None)) is not None:
            self.logger.record("train/std", torch.exp(log_std.detach()).mean())
        for watch in self.watching:
            watch(outcome)


def _timed(split: TimeSplit, minibatches: Minibatches, size: int | None) -> Any:
    return split.sample.timing(minibatches(size))
