"""Connect-4: four in a row on a board of seven columns, into which discs fall."""

from __future__ import annotations

import numpy as np

from polyak.envs.games.game import NOT_OVER, Game, Symmetry

ROWS, COLUMNS = 6, 7
_HEIGHT = np.uint64(ROWS + 1)
"""Bits of a column: its fields, and one above that is always empty, so that no line wraps around the board's edge."""
_DIRECTIONS = tuple(np.uint64(n) for n in (1, ROWS, ROWS + 1, ROWS + 2))
"""Distance of neighbours, in bits: upwards, along both diagonals and to the right."""
_BOTTOM = np.uint64(1) << (np.arange(COLUMNS, dtype=np.uint64) * _HEIGHT)
_TOP = _BOTTOM << np.uint64(ROWS - 1)
_FULL = np.bitwise_or.reduce(_BOTTOM) * np.uint64((1 << ROWS) - 1)
_BITS = np.uint64(1) << (
    np.arange(COLUMNS, dtype=np.uint64) * _HEIGHT + np.arange(ROWS, dtype=np.uint64)[:, None]
)  # [ROWS, COLUMNS]


def four_in_a_row(discs: np.ndarray) -> np.ndarray:
    """Whether sets of fields hold four in a row. [B] uint64 -> [B] bool"""
    found = np.zeros(len(discs), bool)
    for step in _DIRECTIONS:
        pairs = discs & (discs >> step)
        found |= (pairs & (pairs >> (step + step))) != 0
    return found


class Connect4(Game):
    """Connect-4. A position is [B, 2] uint64: the discs of the player to move and those of the other, a bit each.

    Observations are planes [2, 6, 7] of own discs and the other's, row 0 at the bottom; move i drops one in column i.
    """

    name = "connect4"
    n_moves = COLUMNS
    observation_shape = (2, ROWS, COLUMNS)
    longest = ROWS * COLUMNS

    def start(self, n: int) -> np.ndarray:
        return np.zeros((n, 2), np.uint64)

    def legal(self, positions: np.ndarray) -> np.ndarray:
        free = ((positions[:, 0] | positions[:, 1])[:, None] & _TOP) == 0
        free[four_in_a_row(positions[:, 1])] = False
        return free

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        self.refuse_illegal(moves, self.legal(positions))
        discs = positions[:, 0] | positions[:, 1]
        after = np.empty_like(positions)
        after[:, 0] = positions[:, 1]
        # one more disc in a column is a carry: it sets the lowest empty bit, and the bits below stay as they are
        after[:, 1] = (discs | (discs + _BOTTOM[moves])) ^ positions[:, 1]
        return after

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        full = (positions[:, 0] | positions[:, 1]) == _FULL
        values = np.where(full, np.float32(0), NOT_OVER)
        values[four_in_a_row(positions[:, 1])] = -1
        return values

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return ((positions[:, :, None, None] & _BITS) != 0).astype(np.float32)

    def read(self, observations: np.ndarray) -> np.ndarray:
        planes = np.greater(np.asarray(observations).reshape(-1, 2, ROWS, COLUMNS), 0.5)
        own, other, taken = planes[:, 0].sum((1, 2)), planes[:, 1].sum((1, 2)), planes.any(1)
        floating = (taken[:, 1:] & ~taken[:, :-1]).any((1, 2))
        if ((own > other) | (other > own + 1) | planes.all(1).any((1, 2)) | floating).any():
            raise ValueError(
                "this position is impossible: the planes [2, 6, 7] are own discs and the other player's, which are "
                "as many or one more; row 0 is at the bottom, and below each disc is another one."
            )
        return np.where(planes, _BITS, np.uint64(0)).sum((2, 3), dtype=np.uint64)

    def symmetries(self) -> list[Symmetry]:
        cells, moves = np.arange(2 * ROWS * COLUMNS).reshape(2, ROWS, COLUMNS), np.arange(COLUMNS)
        return [Symmetry(cells.reshape(-1), moves), Symmetry(cells[:, :, ::-1].reshape(-1), moves[::-1])]

    def text(self, position: np.ndarray, marks: str = "XO.") -> str:
        own, other = (position[:, None, None] & _BITS) != 0
        fields = np.where(own, marks[0], np.where(other, marks[1], marks[2]))
        return "\n".join(" ".join(row) for row in [*fields[::-1], np.arange(COLUMNS).astype(str)])
