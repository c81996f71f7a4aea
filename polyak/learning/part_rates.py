"""Separate learning rates of parts of a learner, such as the actor's optimizer."""

from polyak.hyperparameters.declaration import LearningRate, fitted, require
from polyak.learning.learner import Learner, set_rate
from polyak.schedules import Schedule, get_schedule_fn, value_of
from polyak.suggestions import did_you_mean

PartRates = dict[str, LearningRate]
"""Name of an optimizer -> its learning rate: a number, or a function of the remaining progress."""


def check_part_rates(rates: PartRates | None, *parts: str) -> None:
    """Refuse learning rates of unknown parts, or out of range.

    Raises:
        HyperparameterError: there is no such part, or its learning rate is out of range.
    """
    for name, rate in (rates or {}).items():
        require(name in parts, "learning_rates", rates, f"there is no part {name!r}.{did_you_mean(name, parts)}")
        fitted(f"learning_rates[{name!r}]", rate, LearningRate)


def set_part_rate(learner: Learner, name: str, rate: float | Schedule, progress: float) -> None:
    """Set the learning rate of a part's optimizer, if the learner has it; ``progress`` is the remaining share, 1 to 0."""
    if name in learner.optimizers:
        set_rate(learner.optimizers[name], value_of(f"learning_rates[{name!r}]", get_schedule_fn(rate), progress))
