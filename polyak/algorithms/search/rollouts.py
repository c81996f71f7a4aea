"""Values of positions by random play."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.algorithms.search.rules import draw
from polyak.envs.games.game import Game


class Playouts:
    """Evaluates positions by random rollouts, all in parallel.

    Args:
        game: the rules.
        n: games from each position, whose results are averaged.
        random: the generator, such as ``np.random`` or a Generator.
        longest: moves after which a game is truncated; its value is the return so far.
    """

    def __init__(self, game: Game, n: int = 1, random: Any = np.random, longest: int | None = None) -> None:
        self.game, self.n, self.random = game, n, random
        self.longest = game.longest if longest is None else longest

    def __call__(self, positions: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns uniform priors [B, A] of legal moves, and values [B] for the player to move."""
        values = self.play_out(np.repeat(positions, self.n, axis=0), np.repeat(legal, self.n, axis=0))
        return legal / legal.sum(1, keepdims=True), values.reshape(-1, self.n).mean(1)

    def play_out(self, positions: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """Returns the result of one game from each position [B, ...]."""
        total, weight, rows = np.zeros(len(positions)), 1.0, np.arange(len(positions))
        play = self.game.play  # play() copies, since callers keep the first positions
        for _ in range(self.longest):
            if len(rows) == 0:
                break
            positions = play(positions, draw(legal.astype(np.float32), self.random))
            play = self.game.play_on
            if (earned := self.game.rewards(positions)) is not None:
                total[rows] += weight * earned
            weight *= self.game.discount
            outcome = self.game.outcome(positions)
            going = np.isnan(outcome)
            total[rows[~going]] += weight * outcome[~going]
            rows, positions = rows[going], positions[going]
            legal = self.game.legal(positions)
        return total
