"""Tic-tac-toe: three in a row on a board of three by three."""

from __future__ import annotations

import numpy as np

from polyak.envs.games.game import NOT_OVER, Game, Symmetry

_FIELDS = 1 << np.arange(9, dtype=np.int16)
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_FULL = 511


def _rows_of_three() -> np.ndarray:
    """[512] bool: whether a set of fields, as a number of nine bits, holds a line."""
    lines = np.array([sum(int(_FIELDS[i]) for i in line) for line in _LINES])
    sets = np.arange(512)[:, None]
    won: np.ndarray = ((sets & lines) == lines).any(1)
    return won


_WON = _rows_of_three()


class TicTacToe(Game):
    """Tic-tac-toe. A position is [B, 2] int16: the fields of the player to move and those of the other, a bit each.

    Observations are planes [2, 3, 3] of own marks and the other's; move i marks the field in row i // 3, column i % 3.
    """

    name = "tictactoe"
    n_moves = 9
    observation_shape = (2, 3, 3)
    longest = 9

    def start(self, n: int) -> np.ndarray:
        return np.zeros((n, 2), np.int16)

    def legal(self, positions: np.ndarray) -> np.ndarray:
        free = ((positions[:, 0] | positions[:, 1])[:, None] & _FIELDS) == 0
        free[_WON[positions[:, 1]]] = False
        return free

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        self.refuse_illegal(moves, self.legal(positions))
        after = np.empty_like(positions)
        after[:, 0] = positions[:, 1]
        after[:, 1] = positions[:, 0] | _FIELDS[moves]
        return after

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        full = (positions[:, 0] | positions[:, 1]) == _FULL
        values = np.where(full, np.float32(0), NOT_OVER)
        values[_WON[positions[:, 1]]] = -1
        return values

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return ((positions[:, :, None] & _FIELDS) != 0).astype(np.float32).reshape(-1, 2, 3, 3)

    def read(self, observations: np.ndarray) -> np.ndarray:
        planes = np.greater(np.asarray(observations).reshape(-1, 2, 9), 0.5)
        own, other = planes[:, 0].sum(1), planes[:, 1].sum(1)
        if ((own > other) | (other > own + 1) | planes.all(1).any(1)).any():
            raise ValueError(
                "this position is impossible: the planes [2, 3, 3] are own marks and the other player's, which are "
                "as many or one more, and no field is in both."
            )
        return (planes * _FIELDS).sum(2).astype(np.int16)

    def symmetries(self) -> list[Symmetry]:
        board = np.arange(9).reshape(3, 3)
        rotated = [np.rot90(side, k).reshape(-1) for side in (board, board.T) for k in range(4)]
        return [Symmetry(np.concatenate([moves, moves + 9]), moves) for moves in rotated]

    def text(self, position: np.ndarray, marks: str = "XO.") -> str:
        own, other = ((position[:, None] & _FIELDS) != 0).tolist()
        fields = [marks[0] if a else marks[1] if b else str(i) for i, (a, b) in enumerate(zip(own, other, strict=True))]
        return "\n".join(" ".join(fields[i : i + 3]) for i in (0, 3, 6))
