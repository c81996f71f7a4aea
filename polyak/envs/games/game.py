"""What a game of two players is to a search: arrays, a batch of positions at a time.

Both players see everything, nothing is left to chance, and they move in turn (a pass is a move). A position is seen by
the player to move: "own" and "the other's", never "white" and "black", so that one network plays both sides.

Shapes: B positions, A moves (all that the game ever has), and whatever shape positions and observations have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

GOING_ON = np.float32(np.nan)
"""The outcome of a game that is not over."""


class IllegalMoveError(ValueError):
    """A move that the rules forbid."""


class Symmetry(NamedTuple):
    """Another way to look at a position from which the game is the same."""

    cells: np.ndarray
    """[P] of the numbers of a flat observation: entry i of the new one is entry ``cells[i]`` of the old one."""
    moves: np.ndarray
    """[A] move i of the new position is move ``moves[i]`` of the old one."""


class Game(ABC):
    """The rules of a game.

    A game of your own writes the abstract methods, and :meth:`read`, :meth:`symmetries` and :meth:`text` if it can;
    :func:`~polyak.envs.games.checker.check_game` says what is wrong with it.
    """

    name: ClassVar[str] = "game"
    n_moves: int
    """A."""
    observation_shape: tuple[int, ...]
    longest: int
    """Moves after which any game is over."""
    discount: float = -1.0
    """What is worth 1 to the next player to move is worth so much to the one that moves: of two players, one's gain is
    the other's loss."""
    can_lose_by_moving: ClassVar[bool] = False
    """Whether some move loses at once for who makes it, as the second pass does in Go for who has less."""

    # -- rules ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, n: int) -> np.ndarray:
        """First positions of n games: [n, ...]"""

    @abstractmethod
    def legal(self, positions: np.ndarray) -> np.ndarray:
        """Which moves there are: [B, ...] -> [B, A] bool; none where the game is over."""

    @abstractmethod
    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """The positions after moves [B], as the other player sees them; what is given stays as it is.

        Raises:
            IllegalMoveError: one of them is not legal; see :meth:`refuse_illegal`.
        """

    @abstractmethod
    def outcome(self, positions: np.ndarray) -> np.ndarray:
        """What games are worth to the player to move: [B, ...] -> [B] float32.

        1 is won, 0 drawn, -1 lost, and NaN a game that continues.
        """

    @abstractmethod
    def observe(self, positions: np.ndarray) -> np.ndarray:
        """What a network reads: [B, ...] -> [B, *observation_shape] float32."""

    # -- what a game may add -------------------------------------------------------------------------------------------

    def read(self, observations: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`observe`: [B, *observation_shape] -> [B, ...]

        Raises:
            ValueError: no such position can be.
            NotImplementedError: the game does not say how.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not tell positions from observations. Write its read(), or hand positions "
            "to search() and choose()."
        )

    def symmetries(self) -> list[Symmetry]:
        """All ways to look at a position, the usual one among them."""
        return [Symmetry(np.arange(int(np.prod(self.observation_shape))), self.moves)]

    def text(self, position: np.ndarray, marks: str = "XO.") -> str:
        """A drawing of one position for a terminal: the mover's mark, the other's, and that of an empty field."""
        return str(position)

    def move_text(self, move: int) -> str:
        """What players call a move."""
        return str(move)

    def as_actions(self, moves: np.ndarray) -> np.ndarray:
        """Moves [B], which count from 0, as who plays them takes them."""
        return moves

    def play_on(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """As :meth:`play`, where the positions are not needed any more, so that they need not be copied."""
        return self.play(positions, moves)

    def rewards(self, positions: np.ndarray) -> np.ndarray | None:
        """What the moves that led to positions [B, ...] earned at once, [B]; None: only the end of a game counts."""
        return None

    # -- what follows --------------------------------------------------------------------------------------------------

    @cached_property
    def moves(self) -> np.ndarray:
        """[A] all of them."""
        return np.arange(self.n_moves)

    @cached_property
    def observation_space(self) -> spaces.Box:
        """Of :meth:`observe`: numbers in [0, 1]."""
        return spaces.Box(0.0, 1.0, self.observation_shape, np.float32)

    @cached_property
    def action_space(self) -> spaces.Discrete:
        """Of :meth:`play`."""
        return spaces.Discrete(self.n_moves)

    def refuse_illegal(self, moves: np.ndarray, legal: np.ndarray) -> None:
        """For :meth:`play`: moves [B] must be ``legal`` [B, A].

        Raises:
            IllegalMoveError: naming the first that is not.
        """
        allowed = legal[np.arange(len(moves)), moves] if len(moves) else np.ones(0, bool)
        if not allowed.all():
            at = int(np.argmin(allowed))
            there = ", ".join(self.move_text(int(m)) for m in np.flatnonzero(legal[at])) or "none: the game is over"
            raise IllegalMoveError(f"move {self.move_text(int(moves[at]))} is not legal here; there are {there}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
