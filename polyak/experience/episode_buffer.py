"""Whole episodes of the current policy, used for one update and thrown away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyak.arrays import mapped
from polyak.experience.rollout_buffer import COLLECTED, FLATTENED, RolloutBuffer
from polyak.experience.step import Step


class EpisodeBuffer(RolloutBuffer):
    """A rollout of as many steps as its episodes take, whose minibatches hold the rows of those episodes alone.

    The first ``episodes`` to begin count, in any environment. Counting the first to end would favour short episodes.
    While the last ones continue, the other environments make steps that do not count.

    Attributes:
        episodes: number of episodes that count; set before each rollout.
        counted: [steps, n_envs] bool, which rows belong to them.

    Args:
        buffer_size: initial capacity in steps of each environment; it grows.
        *args, **kwargs: see :class:`RolloutBuffer`.
    """

    episodes: int = 1

    def __init__(self, buffer_size: int, *args: Any, **kwargs: Any) -> None:
        self._room = buffer_size
        super().__init__(buffer_size, *args, **kwargs)

    def reset(self) -> None:
        """Start a new rollout, in which all environments begin an episode."""
        self.buffer_size = self._room
        super().reset()
        self.counted, self._begun = self._zeros(bool), 0

    def record(self, step: Step, *args: Any, **kwargs: Any) -> None:
        if self.full:
            self._grow()
        pos, starts = self.pos, np.asarray(step.episode_starts, bool)
        chosen = starts & (starts.cumsum() <= self.episodes - self._begun)
        self.counted[pos] = np.where(starts, chosen, self.counted[pos - 1] if pos else False)
        self._begun += int(np.count_nonzero(chosen))
        super().record(step, *args, **kwargs)

    def is_complete(self, dones: np.ndarray) -> bool:
        """Whether all episodes that count have ended. dones: [n_envs] whether the last step ended one."""
        if self.pos == 0 or self._begun < self.episodes:
            return False
        return not (self.counted[self.pos - 1] & ~np.asarray(dones, bool)).any()

    def finish(self) -> None:
        """The rollout is over: give back the room that was not needed."""
        self._resize(self.pos)
        self.full = True

    def _grow(self) -> None:
        self._room = 2 * self.buffer_size
        self._resize(self._room)
        self.full = False

    def _resize(self, steps: int) -> None:
        self.buffer_size = steps
        self._change(self._of_size, *COLLECTED, "advantages", "returns", "counted")

    def _of_size(self, old: np.ndarray) -> np.ndarray:
        """The steps that there are, with room for ``buffer_size``."""
        new = np.zeros((self.buffer_size, *old.shape[1:]), old.dtype)
        new[: self.pos] = old[: self.pos]
        return new

    def _change(self, function: Callable[[np.ndarray], np.ndarray], *names: str) -> None:
        for name in names:
            setattr(self, name, mapped(function, getattr(self, name)))

    @property
    def _rows(self) -> int:
        return int(np.count_nonzero(self.counted))

    def _flatten(self) -> None:
        super()._flatten()
        counted = self.swap_and_flatten(self.counted).reshape(-1)
        self._change(lambda column: column[counted], *FLATTENED)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "counted": self.counted[: self.pos]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._room = max(self._room, len(state["rewards"]))
        super().load_state_dict(state)
        self.counted[: self.pos] = state["counted"]
        self._begun = int(np.count_nonzero(state["counted"] & (state["episode_starts"] > 0)))
