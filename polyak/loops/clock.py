"""What time it is in a training."""

from dataclasses import dataclass

from polyak.checkpoint.collection import Collection


@dataclass
class Clock:
    """The counters of a model's training. They outlive one ``learn``, and files hold them."""

    steps: int = 0
    """Environment steps so far, over all environments; from a dataset alone, gradient steps."""
    total: int = 0
    """Steps at which training ends."""
    started_at: int = 0
    """Steps at which the present ``learn`` began."""
    updates: int = 0
    """Gradient steps so far."""
    episodes: int = 0
    """Episodes that have ended."""
    iterations: int = 0
    """Rollouts in the present ``learn``."""
    remaining: float = 1.0
    """Share of the training that is left, from 1 to 0: what schedules are functions of."""
    began: float = 0.0
    """Wall time, in nanoseconds, at which the present ``learn`` began."""
    series: Collection | None = None
    """The series of steps that is under way, or that a file has brought."""

    def tick(self) -> None:
        """Schedules move on to the present number of steps."""
        self.remaining = 1.0 - float(self.steps) / float(self.total)
