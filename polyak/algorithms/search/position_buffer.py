"""Replay buffer of game positions, with search policies and outcomes: AlphaZero's training data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyak.envs.games.game import Symmetry
from polyak.experience import Experience, Ring
from polyak.experience.randomness import Randomness
from polyak.experience.record import record_dtype

_COLUMNS = "observations", "policies", "legal", "values"


class Positions(NamedTuple):
    """B positions, from the view of the player to move, with A moves."""

    observations: Tensor
    """[B, ...]"""
    policies: Tensor
    """[B, A] float32, policies of the search."""
    legal: Tensor
    """[B, A] bool"""
    values: Tensor
    """[B] float32, outcomes of the games for the player to move."""


class PositionBuffer(Randomness):
    """The latest positions; samples are augmented by random symmetries.

    Args:
        buffer_size: number of positions.
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
        self.device = torch.device(device)
        self.cells = np.stack([symmetry.cells for symmetry in symmetries])
        self.moves = np.stack([symmetry.moves for symmetry in symmetries])
        shapes = (np.float32, observation_shape), (np.float32, (n_moves,)), (np.bool_, (n_moves,)), (np.float32, ())
        self.ring = Ring(record_dtype(dict(zip(_COLUMNS, map(np.dtype, shapes), strict=True))), buffer_size)

    def size(self) -> int:
        """Returns the number of stored positions."""
        return self.ring.filled

    def add(self, observations: np.ndarray, policies: np.ndarray, legal: np.ndarray, values: np.ndarray) -> None:
        """Store positions [n, ...]; if there are more than fit, the last ones are kept."""
        rows = zip(_COLUMNS, (observations, policies, legal, values), strict=True)
        self.ring.extend(Experience({name: column[:, None] for name, column in rows}), copy=True)

    def sample(self, batch_size: int) -> Positions:
        """Draw a batch with replacement."""
        found = self.ring.at(self.rng.randint(self.size(), size=batch_size))
        ways = self.rng.randint(len(self.cells), size=batch_size)
        seen = found.observations.reshape(batch_size, -1)
        turned = np.take_along_axis(seen, self.cells[ways], 1).reshape(found.observations.shape)
        policies, legal = (np.take_along_axis(a, self.moves[ways], 1) for a in (found.policies, found.legal))
        arrays = turned, policies, legal, np.ascontiguousarray(found["values"])
        return Positions(*(torch.from_numpy(array).to(self.device) for array in arrays))

    def state_dict(self) -> dict[str, Any]:
        """Returns the filled part, and the write position of the ring."""
        filled = {column: self.ring.columns[column][: self.size(), 0].copy() for column in _COLUMNS}
        return {**filled, "pos": self.ring.written % self.ring.length, "full": self.size() == self.ring.length}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            ValueError: there are more positions than fit.
        """
        count = len(state["values"])
        if count > self.ring.length:
            raise ValueError(f"the file holds {count} positions, more than buffer_size={self.ring.length}.")
        for column in _COLUMNS:
            self.ring.columns[column][:count, 0] = state[column]
        self.ring.written = count + int(state["pos"]) if count == self.ring.length else count
