"""Statistics of the episodes that ended lately."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyak.envs.adapters.infos import as_monitored
from polyak.logging.logger import Logger


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
        """Forget all."""
        self.episodes.clear()
        self.successes.clear()

    def note(self, columns: Mapping[str, np.ndarray]) -> None:
        """Keep the episodes that ended in a step: see :class:`~polyak.envs.protocol.Outcome`."""
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
