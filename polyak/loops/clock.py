"""The counters of a training, the statistics of recent episodes, and the log tables that contain both."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from sys import float_info
from time import time_ns
from typing import Any

import numpy as np

from polyak.checkpoint.collection import Collection
from polyak.envs.adapters.counted import Counted, EpisodesInTensors
from polyak.envs.adapters.infos import as_monitored
from polyak.logging.logger import Logger

LONG = 100_000
"""Steps of the vectorised environment without an end of an episode, after which a training that has made all its steps
no longer waits for one."""


@dataclass
class Clock:
    """The counters of a model's training. They outlive one ``learn``, and files hold them."""

    steps: int = 0
    """Environment steps so far, over all environments; in offline training, gradient steps."""
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
    """Remaining share of the training, from 1 to 0: the argument of schedules."""
    began: float = 0.0
    """Wall time, in nanoseconds, at which the present ``learn`` began."""
    series: Collection | None = None
    """The series of steps that is under way, or that was restored from a file."""
    beside: dict[str, Any] | None = None
    """State of callbacks and evaluations that was restored from a file: see :mod:`polyak.callbacks.beside`."""

    @property
    def planned(self) -> int:
        """Steps of the whole training, before its first one; of a resumed one, those of both parts together."""
        brought = self.beside["clock"] if self.beside is not None else {"total": self.total, "started_at": self.steps}
        total = self.total if self.total > self.steps else int(brought["total"])
        return max(total - int(brought["started_at"]), 0)

    def tick(self) -> None:
        """Update the remaining share to the present number of steps."""
        self.remaining = 1.0 - float(self.steps) / float(self.total)

    def tick_within(self) -> None:
        """Update the remaining share, at least 0, if the last series may overshoot ``total``."""
        self.tick()
        self.remaining = max(self.remaining, 0.0)


class EpisodeWithoutEnd(Exception):
    """Ends a training whose last episode does not end."""


class Patience:
    """Waits for episodes to end, up to a limit once the training has made all its steps.

    Args:
        clock: the training's counters.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._ended = self._waited = 0

    def wait(self, ended: int) -> None:
        """Count a step, before it is made.

        Args:
            ended: episodes that have ended in this series of steps.

        Raises:
            EpisodeWithoutEnd: no episode has ended for long, and the training has made its steps.
        """
        self._waited = self._waited + 1 if ended == self._ended else 0
        self._ended = ended
        if self._waited > LONG and self.clock.steps >= self.clock.total:
            raise EpisodeWithoutEnd(
                f"total_timesteps={self.clock.total - self.clock.started_at} are made, and no episode has ended in the "
                f"last {LONG:,} steps: training ends here, and does not learn from the episode under way. Give the "
                "environment a time limit, such as gymnasium.wrappers.TimeLimit(env, 1000)."
            )


class EpisodeStatistics:
    """Keeps returns, lengths and successes of the last episodes.

    Args:
        window: how many episodes.
    """

    def __init__(self, window: int) -> None:
        self.episodes: deque[dict[str, Any]] = deque(maxlen=window)
        self.successes: deque[float] = deque(maxlen=window)

    def resize(self, window: int) -> None:
        """Keep another number of episodes from now on."""
        self.episodes, self.successes = deque(self.episodes, maxlen=window), deque(self.successes, maxlen=window)

    def clear(self) -> None:
        """Remove all episodes."""
        self.episodes.clear()
        self.successes.clear()

    def note(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add the episodes that ended in a step: see :class:`~polyak.envs.protocol.Outcome`."""
        self.episodes.extend(as_monitored(columns))
        if (success := columns.get("success")) is not None:
            self.successes.extend(success[~np.isnan(success)].tolist())

    def record(self, logger: Logger) -> None:
        """Log the means."""
        if self.episodes:
            logger.record("rollout/ep_rew_mean", float(np.mean([episode["r"] for episode in self.episodes])))
            logger.record("rollout/ep_len_mean", float(np.mean([episode["l"] for episode in self.episodes])))
        if self.successes:
            logger.record("rollout/success_rate", float(np.mean(self.successes)))


def read_episodes(model: Any) -> None:
    """Add the statistics of episodes that ended on the device; the host waits for them."""
    if model.runner is not None and isinstance(model.runner.env, Counted):
        _take_over(model, model.runner.env.episodes)


def _take_over(model: Any, episodes: EpisodesInTensors) -> None:
    fresh, newest = episodes.read()
    model.clock.episodes += fresh
    seconds = round((time_ns() - model.start_time) / 1e9, 6)
    model.ep_info_buffer.extend({"r": float(r), "l": int(length), "t": seconds} for r, length in newest)


def write_logs(model: Any, counters: dict[str, float]) -> None:
    """Write a table: the statistics of finished episodes, the speed and whatever was recorded since the last one.

    Args:
        model: the model.
        counters: further values of the group ``time/``.
    """
    logger, clock = model.logger, model.clock
    for part in model.parts.values():
        for task in part.logs:
            task(model)
    read_episodes(model)
    elapsed = max((time_ns() - clock.began) / 1e9, float_info.epsilon)
    for name, value in counters.items():
        logger.record(f"time/{name}", value, exclude="tensorboard")
    model.statistics.record(logger)
    logger.record("time/fps", int((clock.steps - clock.started_at) / elapsed))
    logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
    logger.record("time/total_timesteps", clock.steps, exclude="tensorboard")
    for name, share in model._split.percent_since_logged().items():
        logger.record(f"time/{name}", share, exclude="stdout")
    logger.dump(step=clock.steps)
