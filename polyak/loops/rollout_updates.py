"""Gradient steps on a rollout."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyak.collecting.time_split import TimeSplit
from polyak.learning.host import LearnerHost
from polyak.learning.learner import Learner
from polyak.logging.logger import Logger
from polyak.loops.clock import Clock
from polyak.loops.updates import record_means

Minibatches = Callable[[int | None], Any]
"""Called with their size, None for all rows in one: the minibatches of a pass over a rollout, for the learner's
``update``."""


class Gained(NamedTuple):
    """What the gradient steps on a rollout came to."""

    metrics: dict[str, list[Tensor]]
    """Of each that is to be logged."""
    updates: int
    """By how much the counter of updates rises."""


@dataclass
class RolloutUpdates:
    """Lets a learner learn from one rollout after another."""

    learner: Learner
    """Learns."""
    lesson: Callable[[Minibatches], Gained]
    """What it makes of the minibatches of a rollout."""
    minibatches: Callable[[], Minibatches]
    """Of the present rollout."""
    host: LearnerHost
    """What the learner learns by."""
    follow: Callable[[], None]
    """Brings hyper-parameters that move to the learner."""
    clock: Clock
    """Counts updates."""
    logger: Logger
    """Takes the means of what the learner measures."""
    split: TimeSplit
    """Adds up the time."""
    watching: tuple[Callable[[Gained], None], ...] = ()
    """Called with what was measured, when it is logged."""

    def make(self, buffer: Any) -> None:
        """Learn from a rollout whose advantages are known."""
        self.learner.policy.set_training_mode(True)
        self.follow()
        outcome = self.lesson(partial(_timed, self.split, self.minibatches()))
        self.clock.updates += outcome.updates
        record_means(outcome.metrics, self.logger, self.host)
        values, returns = buffer.values.reshape(-1), buffer.returns.reshape(-1)
        self.logger.record("train/explained_variance", explained_variance(values, returns))
        self.logger.record("train/n_updates", self.clock.updates, exclude="tensorboard")
        if (log_std := getattr(self.learner.policy, "log_std", None)) is not None:
            self.logger.record("train/std", torch.exp(log_std.detach()).mean())
        for watch in self.watching:
            watch(outcome)


def _timed(split: TimeSplit, minibatches: Minibatches, size: int | None) -> Any:
    return split.sample.timing(minibatches(size))


def explained_variance(y_pred: Any, y_true: Any) -> Any:
    """1 - Var[y_true - y_pred] / Var[y_true]: 1 is perfect, 0 no better than the mean; NaN where y_true is constant.

    Of arrays [B] a number; of tensors [B] a tensor [].
    """
    variance = _variance(y_true)
    if isinstance(variance, Tensor):
        return torch.where(variance == 0, torch.nan, 1 - _variance(y_true - y_pred) / variance)
    return float("nan") if variance == 0 else float(1 - _variance(y_true - y_pred) / variance)


def _variance(x: Any) -> Any:
    """As ``np.var`` of a vector, at a third of its cost, which counts where rollouts are short."""
    apart = x - x.sum() / len(x)
    return apart.dot(apart) / len(x)
