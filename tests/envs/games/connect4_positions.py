"""Positions of Connect-4 whose moves are known exactly: what a player is asked, and how often it errs.

``connect4_positions.npz`` beside this file holds what :func:`drawn` makes of its defaults, which takes minutes:

    python -m tests.envs.games.connect4_positions

36 positions after each of 18 to 27 random moves, in which no player can win at once and some moves are worth less
than others (won, drawn or lost).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyak.envs.games.connect4 import COLUMNS, Connect4
from polyak.envs.games.game import Game
from tests.envs.games.connect4_solver import Solver

FILE = Path(__file__).with_name("connect4_positions.npz")
ILLEGAL = -2
"""In the place of what a move is worth that the rules forbid."""


class Solved(NamedTuple):
    """K positions, and what each move is worth in truth."""

    positions: np.ndarray
    """[K, 2] uint64, as :class:`~polyak.envs.games.connect4.Connect4` has them."""
    worths: np.ndarray
    """[K, 7] int8 to the player that moves: 1 won, 0 drawn, -1 lost, ``ILLEGAL``."""
    plies: np.ndarray
    """[K] moves made before."""

    def errors(self, moves: np.ndarray) -> np.ndarray:
        """[K] whether moves [K] are worth less than the best."""
        return self.worths[np.arange(len(moves)), moves] < self.worths.max(1)


def drawn(seed: int = 0, plies: Sequence[int] = range(18, 28), each: int = 36) -> Solved:
    """Positions from games played at random.

    Args:
        seed: of the games.
        plies: moves before the positions; fewer take far longer to solve, by a factor of two or three each.
        each: positions of so many moves.
    """
    found = [one for ply in plies for one in _some(np.random.default_rng((seed, ply)), ply, each)]
    positions, worths = (np.stack(column) for column in zip(*found, strict=True))
    return Solved(positions, worths, np.repeat(np.asarray(plies), each))


def _some(rng: np.random.Generator, plies: int, number: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    game, solver, seen = Connect4(), Solver(), set[tuple[int, ...]]()
    while len(seen) < number:
        position = _played(game, rng, plies)
        if position is None or tuple(position.tolist()) in seen or _wins_at_once(game, position):
            continue
        worths = np.full(COLUMNS, ILLEGAL, np.int8)
        for column, worth in solver.moves(position).items():
            worths[column] = worth
        if len(set(worths[worths != ILLEGAL].tolist())) > 1:
            seen.add(tuple(position.tolist()))
            yield position, worths


def _played(game: Game, rng: np.random.Generator, plies: int) -> np.ndarray | None:
    position = game.start(1)
    for _ in range(plies):
        position = game.play(position, rng.choice(np.flatnonzero(game.legal(position)[0]), 1))
        if not np.isnan(game.outcome(position)[0]):
            return None
    return position[0]


def _wins_at_once(game: Game, position: np.ndarray) -> bool:
    moves = np.flatnonzero(game.legal(position[None])[0])
    after = game.play(np.repeat(position[None], len(moves), 0), moves)
    return bool((game.outcome(after) == -1).any())


def load() -> Solved:
    """Those of the file."""
    with np.load(FILE, allow_pickle=False) as file:
        return Solved(file["positions"], file["worths"], file["plies"])


def error_rate(solved: Solved, choose: Callable[[np.ndarray], np.ndarray]) -> float:
    """Share of the positions in which ``choose``, from positions [K, 2] to moves [K], errs."""
    return float(solved.errors(choose(solved.positions)).mean())


if __name__ == "__main__":
    np.savez_compressed(FILE, **drawn()._asdict())
