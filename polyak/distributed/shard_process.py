"""A shard of a replay buffer, as it exists in another process. It does not depend on the transport.

Shapes: T steps of N environments, B rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import cloudpickle
import numpy as np
import torch

from polyak.arrays import mapped
from polyak.experience.base_buffer import Normalizer
from polyak.experience.batch import gathered
from polyak.experience.frames import pair_as_sent
from polyak.experience.record import Experience
from polyak.experience.replay_buffer import ReplayBuffer
from polyak.experience.samplers import Prioritized


class DrawnRows(Experience):
    """Rows of a batch. In a pickle the frames that an observation shares with its successor are kept once."""

    def __reduce__(self) -> tuple[Any, ...]:
        sent = mapped(pair_as_sent, self.observations, self.next_observations)
        now, then = (mapped(itemgetter(number), sent) for number in range(2))
        return Experience, ({**self.columns, "observations": now, "next_observations": then},)


class ShardProcess:
    """Holds the steps of some of the environments, and draws from them.

    Args:
        recipe: pickled: a function that makes the :class:`~polyak.experience.ReplayBuffer`.
        alone: whether it has its own process, with one thread.
    """

    def __init__(self, recipe: bytes, alone: bool) -> None:
        if alone:
            torch.set_num_threads(1)
        self._make: Callable[[], ReplayBuffer] = cloudpickle.loads(recipe)
        self.buffer: Any = None

    def begin(self) -> tuple[int, float, int]:
        """Make the buffer, or let running episodes end in the one that is there. -> its process, the mass, and the
        steps of each environment that it holds"""
        if self.buffer is None:
            self.buffer = self._make()
        self.buffer.cut_episodes()
        return os.getpid(), self.mass(), self.buffer.size()

    @property
    def _sampler(self) -> Prioritized | None:
        return self.buffer.sampler if isinstance(self.buffer.sampler, Prioritized) else None

    def mass(self) -> float:
        """Returns the total mass of the shard's draws: the sum of priorities, or without these the number of rows."""
        sampler = self._sampler
        return float(self.buffer.size() * self.buffer.n_envs) if sampler is None else sampler.tree.total

    def add(self, rows: Experience, highest: float) -> float:
        """Store steps; returns the mass after that.

        Args:
            rows: [T, N, ...] in the form in which a replay buffer stores them.
            highest: the highest priority in any shard so far, which new rows get.
        """
        self._raise(highest)
        self.buffer.take_over(rows)
        return self.mass()

    def cut(self, envs: Sequence[int]) -> float:
        """Let running episodes end at the newest row. -> the mass then"""
        self.buffer.cut_episodes(envs)
        return self.mass()

    def draw(self, rows: int, gamma: float, normalizer: Normalizer | None) -> Experience:
        """Draws rows in proportion to their priorities: the fields of a :class:`~polyak.experience.batch.Transition`,
        and with priorities their ``cells`` [B] and ``priorities`` [B].

        Args:
            rows: B
            gamma: discount of one step, where the buffer does not sum several.
            normalizer: normalises observations and rewards.
        """
        batch, indices = next(iter(self.buffer.transitions(rows, gamma, normalizer)))
        fields = {name: column for name, column in gathered(batch)._asdict().items() if column is not None}
        columns = mapped(lambda column: column.numpy(force=True), fields)
        if (sampler := self._sampler) is not None:
            assert indices is not None
            columns["cells"] = indices.numpy()
            columns["priorities"] = sampler.tree.leaves[columns["cells"]]
        return DrawnRows(columns)

    def update(self, cells: np.ndarray, errors: np.ndarray, highest: float) -> float:
        """Give rows [B] new priorities. -> the mass then"""
        self.buffer.update_priorities(cells, errors)
        self._raise(highest)
        return self.mass()

    def _raise(self, highest: float) -> None:
        if (sampler := self._sampler) is not None:
            _ = sampler.tree  # earlier rows get the priority that was the highest then
            sampler.highest = max(sampler.highest, highest)

    def discount_by(self, gamma: float) -> float:
        """Sum returns of several steps with another discount from now on. -> the mass"""
        self.buffer.discount_by(gamma)
        return self.mass()

    def reset(self) -> float:
        """Drop all rows; returns the mass after that."""
        self.buffer.reset()
        return self.mass()

    def contents(self) -> Experience:
        """Returns all rows, the oldest first: [T, N, ...]"""
        return Experience(self.buffer.contents())

    def state(self) -> dict[str, Any]:
        """Returns the content of the shard, and the state of its draws."""
        return self.buffer.state_dict()

    def load_state(self, state: dict[str, Any]) -> float:
        """Restore a state that :meth:`state` returned; returns the mass after that."""
        self.buffer.load_state_dict(state)
        return self.mass()

    def close(self) -> None:
        """Free the resources of the buffer."""
        self.buffer.close()
