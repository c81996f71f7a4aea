"""Check the rules of a game by random play; an error names the moves that led to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyak.envs.games.game import Game, IllegalMoveError


class GameError(ValueError):
    """A game that breaks its own rules."""


def check_game(game: Game, n_games: int = 20, seed: int = 0, *, tried: int | None = None) -> None:
    """Play some games at random, and check every position.

    Args:
        game: to be checked.
        n_games: number of games.
        seed: of the moves.
        tried: in how many positions of each game, from the start, every move is tried; ``None``: in all of them.

    Raises:
        GameError: an illegal move is accepted, there is no move before the end or one after it, ``play`` changes its
            argument, positions depend on the rest of the batch, an outcome or a symmetry is not valid, ... The message
            names the moves from the start.
    """
    rng = np.random.default_rng(seed)
    for _ in range(n_games):
        _Played(game, rng).through(game.longest if tried is None else tried)


class _Played:
    """A game of random moves, and the moves so far."""

    def __init__(self, game: Game, rng: np.random.Generator) -> None:
        self.game, self.rng = game, rng
        self.moves: list[int] = []

    def require(self, holds: bool | np.bool_, what: str, *more: Any) -> None:
        """Raise an error with the moves so far and ``more``, unless ``holds``."""
        if not holds:
            path = ", ".join(self.game.move_text(int(move)) for move in (*self.moves, *more)) or "none: at the start"
            raise GameError(f"{self.game!r} is not a game to search: {what}. Moves: {path}.")

    def through(self, tried: int) -> None:
        """Play to the end; every move is tried in the first ``tried`` positions."""
        game, position = self.game, self.game.start(1)
        self.require(len(position) == 1, f"start(1) makes {len(position)} positions, not 1")
        while (legal := self.legal_in(position)) is not None:
            made = len(self.moves)
            self.require(made < game.longest, f"the game lasts beyond longest={game.longest} moves; say how long")
            if made < tried:
                self.try_moves(position, legal)
            move = int(self.rng.choice(np.flatnonzero(legal)))
            position = game.play(position, np.array([move]))
            self.moves.append(move)

    def legal_in(self, position: np.ndarray) -> np.ndarray | None:
        """Look at one position [1, ...]: its legal moves [A], or None at the end of the game."""
        game, n = self.game, self.game.n_moves
        legal, outcome, seen = game.legal(position), np.asarray(game.outcome(position)), game.observe(position)
        good = legal.shape == (1, n) and legal.dtype == bool
        self.require(good, f"legal() gives {legal.dtype} {legal.shape}, not bool (1, {n})")
        self.require(outcome.shape == (1,), f"outcome() has the shape {outcome.shape}, not (1,)")
        good = seen.shape == (1, *game.observation_shape) and game.observation_space.contains(seen[0])
        found = f"{seen.dtype} {seen.shape} in [{seen.min()}, {seen.max()}]"
        self.require(good, f"observe() gives {found}, not {game.observation_space}")
        over, value = not np.isnan(outcome[0]), float(outcome[0])
        self.require(not over or abs(value) <= 1, f"the game ends with the outcome {value}, outside [-1, 1]")
        if over:
            self.require(not legal.any(), f"the game is over with {value:g}, but move {legal.argmax()} is legal")
        else:
            self.require(legal.any(), "there is no legal move, but outcome() says that the game continues (NaN)")
        self.check_reading(position, seen)
        return None if over else legal[0]

    def check_reading(self, position: np.ndarray, seen: np.ndarray) -> None:
        """The position that is read from an observation, or from a symmetric one, must be the same."""
        game = self.game
        if type(game).read is Game.read:
            return
        facts: tuple[Callable[[Any], Any], ...] = game.legal, game.outcome, game.observe
        for fact, before in ((fact, fact(position)) for fact in facts):
            same = np.array_equal(before, fact(game.read(seen)), equal_nan=True)
            self.require(same, f"{fact.__name__}() of what read() makes of the observation differs")
        for i, side in enumerate(game.symmetries()):
            mirrored = game.read(seen.reshape(1, -1)[:, side.cells].reshape(seen.shape))
            same = np.array_equal(game.legal(mirrored), game.legal(position)[:, side.moves])
            same &= np.array_equal(game.outcome(mirrored), game.outcome(position), equal_nan=True)
            self.require(same, f"symmetry {i} is none: its moves or its outcome are not those of the position")

    def try_moves(self, position: np.ndarray, legal: np.ndarray) -> None:
        """Play all moves from one position: the illegal ones must be refused, the others leave it as it is."""
        before, game = self.facts(position), self.game
        for move in np.flatnonzero(~legal):
            try:
                game.play(position, np.array([move]))
            except ValueError:
                continue
            self.require(False, "the last of these moves is illegal, but play() accepts it", move)
        allowed, ones = np.flatnonzero(legal), []
        changed = "playing the last of these moves changed the position that it was played from: play() must copy"
        for move in allowed:
            try:
                ones.append(game.play(position, np.array([move])))
            except IllegalMoveError as error:
                self.require(False, f"legal() allows the last of these moves, play() says: {error}", move)
            self.require(_same(before, self.facts(position)), changed, move)
        many = game.play(np.concatenate([position] * len(allowed)), allowed)
        another = "the position after these moves is another when they are played in a batch, or a second time"
        for i, move in enumerate(allowed):
            self.require(_same(self.facts(ones[i]), self.facts(many[i : i + 1])), another, move)
            value = float(game.outcome(ones[i])[0])
            self.require(
                game.discount > 0 or game.can_lose_by_moving or not value > 0,
                f"the player to move has won ({value:g}) by the other's move: outcome() must be that of the player to "
                "move, which after a winning move is -1; can_lose_by_moving says that there are moves which lose",
                move,
            )

    def facts(self, position: np.ndarray) -> list[np.ndarray]:
        """Returns the arrays that a search reads of a position."""
        game = self.game
        return [game.legal(position), np.asarray(game.outcome(position)), np.array(game.observe(position))]


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True))
