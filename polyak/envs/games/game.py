"""The interface of a two-player game for a search: arrays, a batch of positions at a time.

Games have perfect information and no chance, and the players move in turn (a pass is a move). A position is seen from
the side of the player to move: "own" and "the other's", never "white" and "black", so that one network plays both
sides.

Shapes: B positions, A moves (all that the game has); positions and observations have shapes of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

NOT_OVER = np.float32(np.nan)
"""The outcome of a game that is not over."""


class IllegalMoveError(ValueError):
    """A move that the rules forbid."""


class Symmetry(NamedTuple):
    """A transformation of positions under which the game stays the same."""

    cells: np.ndarray
    """[P] for flat observations: entry i of the new one is entry ``cells[i]`` of the old one."""
    moves: np.ndarray
    """[A] move i of the new position is move ``moves[i]`` of the old one."""


class Game(ABC):
    """The rules of a game.

    A subclass defines the abstract methods, and may define :meth:`read`, :meth:`symmetries` and :meth:`text`;
    :func:`~polyak.envs.games.checker.check_game` finds its mistakes.
    """

    name: ClassVar[str] = "game"
    n_moves: int
    """A."""
    observation_shape: tuple[int, ...]
    longest: int
    """Moves after which any game is over."""
    discount: float = -1.0
    """Discount factor from the value of the next player to move to that of the player who moves: -1 in a zero-sum game
    of two players."""
    can_lose_by_moving: ClassVar[bool] = False
    """Whether a move can lose at once for the player that makes it, as the second pass in Go for the player behind."""

    # -- rules ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, n: int) -> np.ndarray:
        """First positions of n games: [n, ...]"""

    @abstractmethod
    def legal(self, positions: np.ndarray) -> np.ndarray:
        """Returns the legal moves: [B, ...] -> [B, A] bool; none where the game is over."""

    @abstractmethod
    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """Returns the positions after moves [B], from the other player's view; the arguments are not changed.

        Raises:
            IllegalMoveError: a move is not legal; see :meth:`refuse_illegal`.
        """

    @abstractmethod
    def outcome(self, positions: np.ndarray) -> np.ndarray:
        """Returns the values of games to the player to move: [B, ...] -> [B] float32.

        1 is won, 0 drawn, -1 lost, and NaN a game that is not over.
        """

    @abstractmethod
    def observe(self, positions: np.ndarray) -> np.ndarray:
        """Returns observations for a network: [B, ...] -> [B, *observation_shape] float32."""

    # -- optional methods ----------------------------------------------------------------------------------------------

    def read(self, observations: np.ndarray) -> np.ndarray:
        """Inverts :meth:`observe`: [B, *observation_shape] -> [B, ...]

        Raises:
            ValueError: an observation belongs to no possible position.
            NotImplementedError: the game does not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot convert observations to positions. Write its read(), or pass positions "
            "to search() and choose()."
        )

    def symmetries(self) -> list[Symmetry]:
        """Returns all symmetries, including the identity."""
        return [Symmetry(np.arange(int(np.prod(self.observation_shape))), self.moves)]

    def text(self, position: np.ndarray, marks: str = "XO.") -> str:
        """Returns a drawing of one position for a terminal: the mover's mark, the other's, and that of an empty
        field."""
        return str(position)

    def move_text(self, move: int) -> str:
        """Returns the name of a move, as players write it."""
        return str(move)

    def as_actions(self, moves: np.ndarray) -> np.ndarray:
        """Moves [B], which count from 0, as actions of the environment."""
        return moves

    def play_on(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """Plays moves like :meth:`play`, but may change the given positions in place."""
        return self.play(positions, moves)

    def rewards(self, positions: np.ndarray) -> np.ndarray | None:
        """Immediate rewards of the moves that led to positions [B, ...], [B]; None: only the end of a game counts."""
        return None

    # -- derived -------------------------------------------------------------------------------------------------------

    @cached_property
    def moves(self) -> np.ndarray:
        """[A] all moves."""
        return np.arange(self.n_moves)

    @cached_property
    def observation_space(self) -> spaces.Box:
        """The space of :meth:`observe`: numbers in [0, 1]."""
        return spaces.Box(0.0, 1.0, self.observation_shape, np.float32)

    @cached_property
    def action_space(self) -> spaces.Discrete:
        """The space of the moves of :meth:`play`."""
        return spaces.Discrete(self.n_moves)

    def refuse_illegal(self, moves: np.ndarray, legal: np.ndarray) -> None:
        """Check, for :meth:`play`, that moves [B] are ``legal`` [B, A].

        Raises:
            IllegalMoveError: one is not; the message names the first.
        """
        allowed = legal[np.arange(len(moves)), moves] if len(moves) else np.ones(0, bool)
        if not allowed.all():
            at = int(np.argmin(allowed))
            there = ", ".join(self.move_text(int(m)) for m in np.flatnonzero(legal[at])) or "none: the game is over"
            raise IllegalMoveError(f"move {self.move_text(int(moves[at]))} is not legal here; there are {there}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
