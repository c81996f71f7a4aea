"""Positions of games, with what a search thought of them and how the games ended: what AlphaZero learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyak.envs.games.game import Symmetry
from polyak.experience.randomness import Randomness

_COLUMNS = "observations", "policies", "legal", "values"


class Positions(NamedTuple):
    """B positions, seen by whoever is to move, who has A moves."""

    observations: Tensor
    """[B, ...]"""
    policies: Tensor
    """[B, A] float32, shares of good moves."""
    legal: Tensor
    """[B, A] bool"""
    values: Tensor
    """[B] float32, how the game ended for the player to move."""


class PositionBuffer(Randomness):
    """Ring of positions; each is drawn in any of the ways to look at it.

    Args:
        buffer_size: positions kept.
        observation_shape: of one observation.
        n_moves: A.
        symmetries: of the game.
        device: of the batches.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_shape: tuple[int, ...],
        n_moves: int,
        symmetries: Sequence[Symmetry],
        device: torch.device | str = "cpu",
    ) -> None:
        self.buffer_size, self.device, self.pos, self.full = buffer_size, torch.device(device), 0, False
        self.cells = np.stack([symmetry.cells for symmetry in symmetries])
        self.moves = np.stack([symmetry.moves for symmetry in symmetries])
        self.observations = np.zeros((buffer_size, *observation_shape), np.float32)
        self.policies = np.zeros((buffer_size, n_moves), np.float32)
        self.legal = np.zeros((buffer_size, n_moves), bool)
        self.values = np.zeros(buffer_size, np.float32)

    def size(self) -> int:
        """Positions that it holds."""
        return self.buffer_size if self.full else self.pos

    def add(self, observations: np.ndarray, policies: np.ndarray, legal: np.ndarray, values: np.ndarray) -> None:
        """Take in positions [n, ...]; of more than there is room for, the last ones stay."""
        slots = (self.pos + np.arange(len(values))) % self.buffer_size
        for column, rows in zip(_COLUMNS, (observations, policies, legal, values), strict=True):
            getattr(self, column)[slots[-self.buffer_size :]] = rows[-self.buffer_size :]
        self.full |= self.pos + len(values) >= self.buffer_size
        self.pos = (self.pos + len(values)) % self.buffer_size

    def sample(self, batch_size: int) -> Positions:
        """Draw with replacement."""
        rows = self.rng.randint(self.size(), size=batch_size)
        ways = self.rng.randint(len(self.cells), size=batch_size)
        seen = self.observations[rows].reshape(batch_size, -1)
        turned = np.take_along_axis(seen, self.cells[ways], 1).reshape(-1, *self.observations.shape[1:])
        policies, legal = (np.take_along_axis(a[rows], self.moves[ways], 1) for a in (self.policies, self.legal))
        arrays = turned, policies, legal, self.values[rows]
        return Positions(*(torch.from_numpy(array).to(self.device) for array in arrays))

    def state_dict(self) -> dict[str, Any]:
        """The filled part, and where the ring stands."""
        filled = {column: getattr(self, column)[: self.size()].copy() for column in _COLUMNS}
        return {**filled, "pos": self.pos, "full": self.full}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned.

        Raises:
            ValueError: there is no room for it.
        """
        count = len(state["values"])
        if count > self.buffer_size:
            raise ValueError(f"the file holds {count} positions, more than buffer_size={self.buffer_size}.")
        for column in _COLUMNS:
            getattr(self, column)[:count] = state[column]
        self.full = count == self.buffer_size
        self.pos = int(state["pos"]) if self.full else count % self.buffer_size
