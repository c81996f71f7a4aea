"""Rollouts as RLlib orders them.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from polyak.data import RolloutBuffer
from polyak.experience import Experience


class RowsInOrder(RolloutBuffer):
    """Hands out neighbouring rows, as ``shuffle_batch_per_epoch=False`` asks.

    Rows come runner by runner: of each first the episodes that ended, in the order in which they did, then those that
    continue, environment by environment. Minibatches are all of the same size: where a pass ends, the next begins in
    the same minibatch.

    Args:
        args, kwargs: of :class:`~polyak.data.RolloutBuffer`.
        envs_per_runner: environments of each runner.

    Attributes:
        ends: [T, N] bool: whether an episode ended with the step.
    """

    leaves_rest: ClassVar[bool] = False

    def __init__(self, *args: Any, envs_per_runner: int, **kwargs: Any) -> None:
        self.envs_per_runner = envs_per_runner
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()
        self.ends, self._passes = self._zeros(dtype=bool), 0

    @property
    def collected(self) -> Experience:
        return super().collected.plus(ends=self.ends)

    def _cuts(self, dones: np.ndarray) -> np.ndarray:
        cuts = super()._cuts(dones)
        self.ends = cuts > 0
        return cuts

    def _order(self, batch_size: int | None) -> tuple[np.ndarray, int]:
        shuffled, size = super()._order(batch_size)
        rows, steps = len(shuffled), self.sequence_length
        first, past = (-(-number * rows // size) for number in (self._passes, self._passes + 1))
        self._passes += 1
        places = np.arange(first * size, past * size, steps) % rows // steps
        return (self._in_order()[places, None] + np.arange(steps)).reshape(-1), size

    def _in_order(self) -> np.ndarray:
        """The first rows of all sequences, which are those of ``sequence_length`` steps."""
        length = self.buffer_size
        step, env = np.tile(np.arange(length), self.n_envs), np.repeat(np.arange(self.n_envs), length)
        last = np.where(self.ends, np.arange(length)[:, None], length)  # of the episode, or past the rollout
        last = np.minimum.accumulate(last[::-1])[::-1].T.reshape(-1)
        order = np.lexsort((step, env, last, env // self.envs_per_runner))
        return order[order % length % self.sequence_length == 0]
