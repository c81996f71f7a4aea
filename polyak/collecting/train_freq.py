"""The amount of experience that off-policy algorithms collect before each update."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from polyak.hyperparameters.declaration import require


class TrainFrequencyUnit(str, Enum):
    """The unit of ``train_freq``."""

    STEP = "step"
    EPISODE = "episode"


@dataclass
class Series:
    """The progress of a series of steps."""

    steps: int = 0
    """Steps of the vectorised environment, including one that is not stored yet."""
    episodes: int = 0
    """Episodes that ended in them."""
    wait: Callable[[int], None] = field(default=lambda ended: None, repr=False, compare=False)
    """Called before each step of a series that waits for episodes to end, with the number of those that have ended."""


class TrainFreq(NamedTuple):
    """The length of a series before each update."""

    frequency: int
    unit: TrainFrequencyUnit

    def is_complete(self, series: Series) -> bool:
        """Whether a series is long enough."""
        if self.unit == "step":
            return series.steps >= self.frequency
        series.wait(series.episodes)
        return series.episodes >= self.frequency

    def missing(self, series: Series) -> int:
        """Returns a lower bound of the steps that the series still lacks."""
        return self.frequency - series.steps if self.unit == "step" else 1


class RolloutReturn(NamedTuple):
    """The result of a collection."""

    episode_timesteps: int
    """Environment steps, over all environments."""
    n_episodes: int
    continue_training: bool
    """False: a callback stops training."""


def convert_train_freq(train_freq: int | tuple[int, str]) -> TrainFreq:
    """Converts ``4``, ``(4, "step")`` or ``(1, "episode")`` to a :class:`TrainFreq`.

    Raises:
        ValueError: the unit is unknown or the number is not a positive integer.
    """
    frequency, unit = train_freq if isinstance(train_freq, tuple | list) else (train_freq, "step")
    unit = getattr(unit, "value", unit)
    require(unit in ("step", "episode"), "train_freq", train_freq, "The unit must be either 'step' or 'episode'.")
    require(
        isinstance(frequency, int) and frequency > 0, "train_freq", train_freq, "the number must be a positive integer."
    )
    return TrainFreq(frequency, TrainFrequencyUnit(unit))
