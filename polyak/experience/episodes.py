"""The bounds of the episodes in a ring of transitions."""

from __future__ import annotations

import numpy as np

NONE = np.empty(0, np.int64)


class Episodes:
    """First and last step of each row's episode, kept while a ring [steps, envs] is written.

    Steps are counted from the start of training and never wrap; step ``s`` lives in slot ``s % steps``.
    A cell is ``slot * envs + env``.
    """

    def __init__(self, steps: int, envs: int):
        self.steps, self.envs = steps, envs
        self.clear()

    def clear(self) -> None:
        """Forget everything: an empty ring."""
        self.total = 0  # steps ever written
        self._finished: np.ndarray | None = None
        self._overwritten = 0
        self.first = np.zeros((self.steps, self.envs), np.int64)
        self._last = np.zeros((self.steps, self.envs), np.int64)  # step + 1 of the last row, 0 while the episode runs
        self.current = np.zeros(self.envs, np.int64)  # first step of the running episode of each env

    @property
    def last(self) -> np.ndarray:
        """[steps, envs] step of the episode's last row, -1 while the episode runs."""
        return self._last - 1

    def add(self, dones: np.ndarray) -> np.ndarray:
        """Note one more vectorised step; returns the cells of the episodes that it ended."""
        slot = self.total % self.steps
        self._overwritten += int(np.count_nonzero(self._last[slot]))
        self.first[slot], self._last[slot] = self.current, 0
        self.total += 1
        return self.close(np.flatnonzero(dones)) if dones.any() else NONE

    def close(self, envs: np.ndarray) -> np.ndarray:
        """End the running episodes of some envs at the newest row; returns the cells of these episodes."""
        newest, oldest = self.total - 1, max(self.total - self.steps, 0)
        self._finished = None
        cells = [NONE]
        for env in envs:
            slots = np.arange(max(self.current[env], oldest), newest + 1) % self.steps
            self._last[slots, env] = newest + 1
            self.current[env] = newest + 1
            cells.append(slots * self.envs + env)
        return np.concatenate(cells)

    def rebuild(self, dones: np.ndarray, pos: int, full: bool) -> None:
        """Set all counters from the done flags [steps, envs] of a ring that was written elsewhere."""
        self.clear()
        size = self.steps if full else pos
        self.total = pos + self.steps * full
        if size == 0:
            return
        steps = np.arange(self.total - size, self.total)
        slots = steps % self.steps
        ended = dones[slots] > 0
        starts = np.vstack([np.ones((1, self.envs), bool), ended[:-1]])
        self.first[slots] = np.maximum.accumulate(np.where(starts, steps[:, None], 0), axis=0)
        never = np.iinfo(np.int64).max
        last = np.minimum.accumulate(np.where(ended, steps[:, None] + 1, never)[::-1], axis=0)[::-1]
        self._last[slots] = np.where(last == never, 0, last)
        self.current = np.where(ended[-1], self.total, self.first[slots[-1]])

    def matches(self, pos: int, full: bool) -> bool:
        """Whether the counters agree with the ring's position."""
        return self.total % self.steps == pos % self.steps and (self.total >= self.steps) == full

    def finished(self, cells: np.ndarray) -> np.ndarray:
        """[B] cells -> [B] whether their episode has ended."""
        return self._last.reshape(-1)[cells] > 0

    def finished_cells(self) -> np.ndarray:
        """Returns the cells, in order, whose episode has ended; up to half of them may have been overwritten since."""
        if self._finished is None or 2 * self._overwritten > len(self._finished):
            self._finished, self._overwritten = np.flatnonzero(self._last), 0
        return self._finished

    def bounds(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[B] cells -> step of the row itself, of its episode's oldest row still held, of its last row; [B] each."""
        age = (self.total - 1 - cells // self.envs) % self.steps
        first = np.maximum(self.first.reshape(-1)[cells], self.total - self.steps)
        return self.total - 1 - age, first, self._last.reshape(-1)[cells] - 1

    def cell(self, steps: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """Cells that hold these steps."""
        return steps % self.steps * self.envs + envs
