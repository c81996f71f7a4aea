"""Go: chains of stones, captured where their last liberty is taken; the larger area wins.

The rules are those of Tromp and Taylor (tromp.github.io/go.html) with two changes. Suicide is forbidden. Their rules
forbid every earlier board (positional superko); here only the board of two moves ago is forbidden (simple ko). A game
ends after two passes in a row or ``2 size^2`` moves, which also ends longer cycles. The area of a player is the
stones on the board and the empty points that reach stones of that player alone. Dead stones count: capture them before
you pass.

Shapes: B positions, R some of them, N points along each side, P = N N points, A = P + 1 moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.envs.games.game import NOT_OVER, Game, Symmetry

KO, PASSES, MADE = -3, -2, -1
"""Columns of a position after its points: the point that a ko forbids (-1: none), passes in a row, moves made."""
_COLUMNS = "abcdefghjklmnopqrst"
"""Names of columns: players leave out the i, which looks like a j."""
_NOT_POSSIBLE = (
    "this position is impossible: the planes [6, N, N] are own stones, the other's, the point that a ko forbids, half "
    "the number of passes in a row, whether the mover is white, and moves made as a share of 2 N^2; every stone has a "
    "liberty, and white makes every second move."
)


class Go(Game):
    """The game of Go, on a square board, scored by area. Black moves first.

    A position is [B, P + 3] int16. The first P numbers are the board, row 0 at the bottom: 0 is an empty point, n > 0 a
    stone of the player to move, n < 0 one of the other's, and equal n make one chain. :data:`KO`, :data:`PASSES` and
    :data:`MADE` name the rest.

    Observations are planes [6, N, N]: own stones, the other's, the point that a ko forbids, half the number of passes
    in a row, whether the mover is white, and moves made as a share of the longest game. Move i < P puts a stone in row
    i // N, column i % N; move P passes.

    Args:
        size: N, from 5 to 19.
        komi: added to the area of white, which moves second. With a whole number, games may be drawn.

    Raises:
        ValueError: ``size`` is no integer from 5 to 19, or ``komi`` no finite number.
    """

    name = "go"
    can_lose_by_moving = True

    def __init__(self, size: int = 9, komi: float = 7.5) -> None:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 5 <= size <= 19:
            raise ValueError(f"size={size!r} must be an integer from 5 to 19: points along each side of the board.")
        if isinstance(komi, bool) or not isinstance(komi, int | float | np.number) or not np.isfinite(komi):
            raise ValueError(f"komi={komi!r} must be a finite number, which is added to the area of white.")
        self.size, self.komi = int(size), float(komi)
        self.n_points = self.size**2
        """P; also the number of the move that passes."""
        self.n_moves = self.n_points + 1
        self.longest = 2 * self.n_points
        self.observation_shape = (6, self.size, self.size)
        self._beside = _neighbours(self.size)

    def __repr__(self) -> str:
        return f"Go(size={self.size}, komi={self.komi:g})"

    # -- rules ---------------------------------------------------------------------------------------------------------

    def start(self, n: int) -> np.ndarray:
        positions = np.zeros((n, self.n_points + 3), np.int16)
        positions[:, KO] = -1
        return positions

    def legal(self, positions: np.ndarray) -> np.ndarray:
        return self._legal(positions, self._has_several_liberties(positions))

    def _legal(self, positions: np.ndarray, several: np.ndarray) -> np.ndarray:
        """Returns the legal moves, given which stones [B, P] belong to chains with several liberties: see
        :meth:`legal`."""
        points = self._points(positions)
        # A new stone needs beside it an empty point, an own chain with another liberty, or a chain to capture.
        helps = (points == 0) | ((points > 0) == several)
        legal = np.ones((len(positions), self.n_moves), bool)
        legal[:, :-1] = (points == 0) & self._next_to(helps)
        rows = np.flatnonzero(positions[:, KO] >= 0)
        legal[rows, positions[rows, KO]] = False
        legal[self._over(positions)] = False
        return legal

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        several = self._has_several_liberties(positions)
        self.refuse_illegal(moves, self._legal(positions, several))
        after = positions.copy()
        after[:, KO] = -1
        after[:, PASSES] = np.where(moves == self.n_points, after[:, PASSES] + 1, 0)
        after[:, MADE] += 1
        rows = np.flatnonzero(moves < self.n_points)
        if len(rows):
            points, ko = self._put(self._points(positions)[rows], several[rows], moves[rows])
            after[rows, : self.n_points], after[rows, KO] = points, ko
        after[:, : self.n_points] *= -1  # the other player is to move
        return after

    def _put(self, points: np.ndarray, several: np.ndarray, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points [R, P] after the mover has put stones on ``moves`` [R], and the points [R] that are then ko, or -1."""
        each, beside = np.arange(len(moves))[:, None], self._beside[moves]
        around = _with_border(points)[each, beside]  # [R, 4]
        spared = _with_border(several)[each, beside]
        joined, taken = np.zeros_like(points, bool), np.zeros_like(points, bool)
        for chain, survives in zip(around.T[..., None], spared.T[..., None], strict=True):
            same = points == chain
            joined |= same & (chain > 0)
            taken |= same & (chain < 0) & ~survives
        # A chain has the number of its latest stone, counted from 1: an empty point, so that no other chain has it.
        chains = moves[:, None] + 1
        put = np.where(joined | (np.arange(self.n_points) == moves[:, None]), chains, np.where(taken, 0, points))
        surrounded = ((around < 0) | (beside == self.n_points)).all(1)
        ko = np.where(surrounded & (taken.sum(1) == 1), taken.argmax(1), -1)
        return put, ko

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        values = np.full(len(positions), NOT_OVER)
        over = self._over(positions)
        if over.any():
            values[over] = np.sign(self.score(positions[over]))
        return values

    def score(self, positions: np.ndarray) -> np.ndarray:
        """Returns the area of the player to move less that of the other, with komi: [B, P + 3] -> [B] float64.

        It is counted as the board stands, at the end of a game or before; all stones count as alive.
        """
        points = self._points(positions)
        reach_own, reach_other = self._reached(points > 0, points == 0), self._reached(points < 0, points == 0)
        area = (reach_own & ~reach_other).sum(1) - (reach_other & ~reach_own).sum(1)
        return area + np.where(self._mover_is_white(positions), self.komi, -self.komi)

    # -- observations for networks -------------------------------------------------------------------------------------

    def observe(self, positions: np.ndarray) -> np.ndarray:
        points = self._points(positions)
        planes = np.zeros((len(positions), 6, self.n_points), np.float32)
        planes[:, 0], planes[:, 1] = points > 0, points < 0
        planes[:, 2] = np.arange(self.n_points) == positions[:, KO, None]
        planes[:, 3] = positions[:, PASSES, None] / 2
        planes[:, 4] = self._mover_is_white(positions)[:, None]
        planes[:, 5] = positions[:, MADE, None] / self.longest
        return planes.reshape(-1, *self.observation_shape)

    def read(self, observations: np.ndarray) -> np.ndarray:
        planes = np.asarray(observations, np.float32).reshape(-1, 6, self.n_points)
        own, other, ko = np.moveaxis(planes[:, :3] > 0.5, 1, 0)
        positions = self.start(len(planes))
        positions[:, : self.n_points] = self._chains(own.astype(np.int16) - other)
        positions[:, KO] = np.where(ko.any(1), ko.argmax(1), -1)
        positions[:, PASSES] = np.rint(2 * planes[:, 3, 0])
        positions[:, MADE] = np.rint(self.longest * planes[:, 5, 0])
        stones, white = own | other, planes[:, 4, 0] > 0.5
        breathes = self._reached(~stones, own) | self._reached(~stones, other)
        wrong = (own & other) | (stones & ~breathes) | (stones & ko)
        if wrong.any() or (white != self._mover_is_white(positions)).any():
            raise ValueError(_NOT_POSSIBLE)
        return positions

    def symmetries(self) -> list[Symmetry]:
        board = np.arange(self.n_points).reshape(self.size, self.size)
        rotated = [np.rot90(side, k).reshape(-1) for side in (board, board.T) for k in range(4)]
        planes = self.n_points * np.arange(6)[:, None]
        return [Symmetry((planes + points).reshape(-1), np.append(points, self.n_points)) for points in rotated]

    # -- text for players ----------------------------------------------------------------------------------------------

    def text(self, position: np.ndarray, marks: str = "XO.") -> str:
        points = self._points(position[None]).reshape(self.size, self.size)
        signs = np.where(points > 0, marks[0], np.where(points < 0, marks[1], marks[2]))
        rows = [f"{i + 1:>2} {' '.join(signs[i])}" for i in reversed(range(self.size))]
        return "\n".join([*rows, f"   {' '.join(_COLUMNS[: self.size])}"])

    def move_text(self, move: int) -> str:
        if move == self.n_points:
            return "pass"
        row, column = divmod(move, self.size)
        return f"{_COLUMNS[column]}{row + 1}"

    # -- boards --------------------------------------------------------------------------------------------------------

    def _points(self, positions: np.ndarray) -> np.ndarray:
        return positions[:, : self.n_points]

    def _over(self, positions: np.ndarray) -> Any:
        return (positions[:, PASSES] >= 2) | (positions[:, MADE] >= self.longest)

    def _mover_is_white(self, positions: np.ndarray) -> Any:
        return positions[:, MADE] % 2 == 1

    def _has_several_liberties(self, positions: np.ndarray) -> np.ndarray:
        """Whether the chain on each point has more than one liberty: [B, P + 3] -> [B, P] bool; empty points: any."""
        points = self._points(positions)
        rows, empty = np.nonzero(points == 0)
        around = np.abs(_with_border(points)[rows[:, None], self._beside[empty]])  # [E, 4] chains, or 0
        at = rows[:, None] * self.n_moves + around
        liberty = np.empty(len(points) * self.n_moves, np.int16)
        liberty[at] = empty[:, None]  # one of each chain's: which one does not matter, for any other differs from it
        several = np.zeros(len(liberty), bool)
        several[at[liberty[at] != empty[:, None]]] = True
        return several[np.arange(len(points))[:, None] * self.n_moves + np.abs(points)]

    def _next_to(self, flags: np.ndarray) -> np.ndarray:
        """Marks the points [R, P] that have a flagged neighbour: [R, P] bool -> [R, P] bool"""
        board = flags.reshape(-1, self.size, self.size)
        found = np.zeros_like(board)
        found[:, 1:] |= board[:, :-1]
        found[:, :-1] |= board[:, 1:]
        found[:, :, 1:] |= board[:, :, :-1]
        found[:, :, :-1] |= board[:, :, 1:]
        return found.reshape(flags.shape)

    def _reached(self, sources: np.ndarray, passable: np.ndarray) -> np.ndarray:
        """Marks the sources and all passable points connected with them: both [R, P] bool -> [R, P] bool"""
        reached = sources
        while True:
            wider = reached | (self._next_to(reached) & passable)
            if np.array_equal(wider, reached):
                return reached
            reached = wider

    def _chains(self, signs: np.ndarray) -> np.ndarray:
        """Signs of stones [R, P] as points of positions: a chain has the number of its last point, counted from 1."""
        numbers = np.abs(signs) * np.arange(1, self.n_moves, dtype=np.int16)
        same = _with_border(signs)[:, self._beside] == signs[:, :, None]  # [R, P, 4]
        while True:
            around = np.where(same, _with_border(numbers)[:, self._beside], 0).max(2)
            higher = np.where(signs == 0, 0, np.maximum(numbers, around))
            if np.array_equal(higher, numbers):
                return signs * numbers
            numbers = higher


def _neighbours(size: int) -> np.ndarray:
    """Returns the points above, below and beside each point [P, 4]; P represents the border."""
    board = np.pad(np.arange(size**2).reshape(size, size), 1, constant_values=size**2)
    sides = board[:-2, 1:-1], board[2:, 1:-1], board[1:-1, :-2], board[1:-1, 2:]
    return np.stack([side.reshape(-1) for side in sides], 1)


def _with_border(points: np.ndarray) -> np.ndarray:
    """Appends a point for the border, which holds 0: [R, P] -> [R, P + 1]"""
    return np.concatenate([points, np.zeros_like(points[:, :1])], 1)
