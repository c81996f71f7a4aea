"""A part of a replay buffer, in another process. It does not know how it is reached.

Shapes: B rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from polyak.compat.ray.processes.batches import Columns, columns_of
from polyak.compat.ray.processes.experience import steps_in
from polyak.compat.ray.processes.fragments import Fragment
from polyak.data import ReplayBuffer
from polyak.experience.samplers import Prioritized


class Mass(NamedTuple):
    """How much there is to draw from."""

    total: float
    """Sum of priorities, or without those the number of rows."""
    rows: int
    """How many are held, also those that may not be drawn yet."""


class Drawn(NamedTuple):
    """Some rows of a shard."""

    ticket: int
    """What was asked for."""
    columns: Columns
    cells: np.ndarray
    """[B] where they stand."""
    priorities: np.ndarray
    """[B]"""
    mass: Mass


class ShardWorker:
    """Holds the steps of some of the environments, and draws from them.

    Args:
        size: transitions that it keeps.
        observation_space, action_space: of the environments.
        n_envs: how many write to it.
        seed: of its draws.
        options: of :class:`~polyak.data.ReplayBuffer`.
    """

    def __init__(
        self,
        size: int,
        observation_space: gym.Space,
        action_space: gym.Space,
        n_envs: int,
        seed: int | None,
        options: dict[str, Any],
    ) -> None:
        self.buffer = ReplayBuffer(
            size, observation_space, action_space, device="cpu", n_envs=n_envs, seed=seed, **options
        )

    def describe(self) -> int:
        """Its process."""
        return os.getpid()

    @property
    def _sampler(self) -> Prioritized | None:
        return self.buffer.sampler if isinstance(self.buffer.sampler, Prioritized) else None

    def _mass(self) -> Mass:
        sampler, filled = self._sampler, self.buffer.size() * self.buffer.n_envs
        return Mass(float(filled) if sampler is None else sampler.tree.total, filled)

    def add(self, fragment: Fragment, cut: Sequence[int], highest: float) -> Mass:
        """Store steps.

        Args:
            fragment: of all environments that write here.
            cut: environments whose earlier steps these do not continue from.
            highest: priority so far in any shard, which new rows get.
        """
        if cut:
            self.buffer.cut_episodes(cut)
        self._raise(highest)
        for step in steps_in(fragment):
            self.buffer.record(step)
        return self._mass()

    def draw(self, ticket: int, rows: int, gamma: float) -> Drawn:
        """Rows in proportion to their priorities."""
        batch, indices = next(iter(self.buffer.transitions(rows, gamma)))
        cells = np.zeros(rows, np.int64) if indices is None else indices.numpy()
        sampler = self._sampler
        priorities = np.ones(rows) if sampler is None else sampler.tree.leaves[cells]
        return Drawn(ticket, columns_of(batch), cells, priorities, self._mass())

    def update(self, cells: np.ndarray, errors: np.ndarray, highest: float) -> Mass:
        """Give rows new priorities."""
        self.buffer.update_priorities(cells, errors)
        self._raise(highest)
        return self._mass()

    def _raise(self, highest: float) -> None:
        if (sampler := self._sampler) is not None:
            _ = sampler.tree  # those that came before get what was the highest then
            sampler.highest = max(sampler.highest, highest)

    def state(self) -> dict[str, Any]:
        """All that it holds."""
        return self.buffer.state_dict()

    def load(self, state: dict[str, Any]) -> Mass:
        """Take back what :meth:`state` returned."""
        self.buffer.load_state_dict(state)
        return self._mass()
