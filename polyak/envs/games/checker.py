"""Check the rules of a game by random play; an error names the moves that led to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyak.envs.games.game import Game, IllegalMoveError


class GameError(ValueError):
    """A game that breaks its own rules."""


def check_game(game: Game, n_games: int = 20, seed: int = 0, *, tried: int | None = None) -> None:
    """Play some games at random, and look at every position.

    Args:
        game: to be checked.
        n_games: how many.
        seed: of the moves.
        tried: in how many positions of each game, from the start, every move is tried; ``None``: in all of them.

    Raises:
        GameError: an illegal move is accepted, there is no move before the end or one after it, ``play`` changes its
            argument, positions depend on the rest of the batch, an outcome or a symmetry is not valid, ... The message
            names the moves from the start.
    """
    rng = np.random.default_rng(seed)
    for _ in range(n_games):
        _check_one(game, rng, game.longest if tried is None else tried)


def _check_one(game: Game, rng: np.random.Generator, tried: int) -> None:
    position, moves = game.start(1), list[int]()
    _require(len(position) == 1, game, moves, f"start(1) makes {len(position)} positions, not 1")
    while True:
        if (legal := _check_position(game, position, moves)) is None:
            return
        _require(
            len(moves) < game.longest, game, moves, f"the game lasts beyond longest={game.longest} moves; say how long"
        )
        if len(moves) < tried:
            _check_moves(game, position, legal, moves, rng)
        move = int(rng.choice(np.flatnonzero(legal)))
        position = game.play(position, np.array([move]))
        moves.append(move)


def _check_position(game: Game, position: np.ndarray, moves: list[int]) -> np.ndarray | None:
    """Looks at one position [1, ...]; returns its legal moves [A], or None at the end of the game."""
    legal, outcome, seen = game.legal(position), np.asarray(game.outcome(position)), game.observe(position)
    _require(
        legal.shape == (1, game.n_moves) and legal.dtype == bool,
        game,
        moves,
        f"legal() gives {legal.dtype} {legal.shape}, not bool (1, {game.n_moves})",
    )
    _require(outcome.shape == (1,), game, moves, f"outcome() has the shape {outcome.shape}, not (1,)")
    _require(
        seen.shape == (1, *game.observation_shape) and game.observation_space.contains(seen[0]),
        game,
        moves,
        f"observe() gives {seen.dtype} {seen.shape} in [{seen.min()}, {seen.max()}], not {game.observation_space}",
    )
    over, value = not np.isnan(outcome[0]), float(outcome[0])
    _require(not over or abs(value) <= 1, game, moves, f"the game ends with the outcome {value}, outside [-1, 1]")
    if not over:
        _require(legal.any(), game, moves, "there is no legal move, but outcome() says that the game continues (NaN)")
    else:
        _require(not legal.any(), game, moves, f"the game is over with {value:g}, but move {legal.argmax()} is legal")
    _check_reading(game, position, seen, moves)
    return legal[0] if not over else None


def _check_reading(game: Game, position: np.ndarray, seen: np.ndarray, moves: list[int]) -> None:
    """The position that is read from an observation, or from a symmetric one, must be the same."""
    if type(game).read is Game.read:
        return
    facts: tuple[Callable[[Any], Any], ...] = game.legal, game.outcome, game.observe
    for fact, before in ((fact, fact(position)) for fact in facts):
        again = fact(game.read(seen))
        same = np.array_equal(before, again, equal_nan=True)
        _require(same, game, moves, f"{fact.__name__}() of what read() makes of the observation differs")
    for i, side in enumerate(game.symmetries()):
        mirrored = game.read(seen.reshape(1, -1)[:, side.cells].reshape(seen.shape))
        same = np.array_equal(game.legal(mirrored), game.legal(position)[:, side.moves])
        same &= np.array_equal(game.outcome(mirrored), game.outcome(position), equal_nan=True)
        _require(same, game, moves, f"symmetry {i} is none: its moves or its outcome are not those of the position")


def _check_moves(
    game: Game, position: np.ndarray, legal: np.ndarray, moves: list[int], rng: np.random.Generator
) -> None:
    """Plays all moves from one position: the illegal ones must be refused, the others leave it as it is."""
    before = _facts(game, position)
    for move in np.flatnonzero(~legal):
        try:
            game.play(position, np.array([move]))
        except ValueError:
            continue
        _require(False, game, [*moves, int(move)], "the last of these moves is illegal, but play() accepts it")
    allowed, ones = np.flatnonzero(legal), []
    for move in allowed:
        try:
            ones.append(game.play(position, np.array([move])))
        except IllegalMoveError as error:
            _require(False, game, [*moves, int(move)], f"legal() allows the last of these moves, play() says: {error}")
        _require(
            _same(before, _facts(game, position)),
            game,
            [*moves, int(move)],
            "playing the last of these moves changed the position that it was played from: play() must copy",
        )
    many = game.play(np.concatenate([position] * len(allowed)), allowed)
    for i, move in enumerate(allowed):
        alone, beside = _facts(game, ones[i]), _facts(game, many[i : i + 1])
        _require(
            _same(alone, beside),
            game,
            [*moves, int(move)],
            "the position after these moves is another when they are played in a batch, or a second time",
        )
        _check_side(game, position, ones[i], [*moves, int(move)])


def _check_side(game: Game, position: np.ndarray, after: np.ndarray, moves: list[int]) -> None:
    value = float(game.outcome(after)[0])
    _require(
        game.discount > 0 or game.can_lose_by_moving or not value > 0,
        game,
        moves,
        f"the player to move has won ({value:g}) by the other's move: outcome() must be that of the player to "
        "move, which after a winning move is -1; can_lose_by_moving says that there are moves which lose",
    )


def _facts(game: Game, position: np.ndarray) -> list[np.ndarray]:
    return [game.legal(position), np.asarray(game.outcome(position)), np.array(game.observe(position))]


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True))


def _require(holds: bool | np.bool_, game: Game, moves: list[int], what: str) -> None:
    if not holds:
        path = ", ".join(map(game.move_text, moves)) or "none: at the start"
        raise GameError(f"{game!r} is not a game to search: {what}. Moves: {path}.")
