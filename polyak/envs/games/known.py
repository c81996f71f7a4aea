"""Games by their names."""

from __future__ import annotations

from typing import Any

from polyak.envs.games.checker import check_game
from polyak.envs.games.connect4 import Connect4
from polyak.envs.games.game import Game
from polyak.envs.games.go import Go
from polyak.envs.games.tictactoe import TicTacToe
from polyak.suggestions import did_you_mean

GAMES: dict[str, type[Game]] = {kind.name: kind for kind in (Connect4, Go, TicTacToe)}


def find_game(game: Any) -> Game:
    """A game as it is, or by its name.

    A user's own game is played four times at random, because a search would not notice wrong rules. That is quick;
    :func:`~polyak.envs.games.checker.check_game` checks more.

    Raises:
        ValueError: there is no game of that name, or it breaks the rules of :class:`~polyak.envs.games.game.Game`.
        TypeError: it is neither a game nor a name.
    """
    if isinstance(game, Game):
        if not type(game).__module__.startswith("polyak."):
            check_game(game, n_games=4, tried=max(1, 200 // game.n_moves))
        return game
    if not isinstance(game, str):
        raise TypeError(f"game={game!r} is no game: give one of {sorted(GAMES)}, or a polyak.envs.games.game.Game.")
    if game not in GAMES:
        others = "PettingZooGame and OpenSpielGame of polyak.envs.games.foreign take those of other libraries"
        hint = did_you_mean(game, GAMES)
        raise ValueError(f"game={game!r} is unknown; there are {sorted(GAMES)}, and {others}.{hint}")
    return GAMES[game]()


def name_of(game: Game) -> str | None:
    """Returns the name from which :func:`find_game` makes the same game; ``None`` if there is none, as for another
    board size."""
    kind = GAMES.get(game.name)
    return game.name if kind is type(game) and repr(kind()) == repr(game) else None
