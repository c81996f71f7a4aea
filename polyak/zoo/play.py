"""``polyak play``: a game in the terminal, against a search that shows its evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.games.game import Game
from polyak.envs.games.known import GAMES
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.gallery import AGENTS
from polyak.zoo.options import CommandOptions, option

Search = Callable[[np.ndarray], Any]
"""Positions -> :class:`~polyak.algorithms.search.mcts.Found`."""


@dataclass
class PlayOptions(CommandOptions):
    """Play a game against a search, in the terminal."""

    game: str = option("connect4", "--game", "-g", help="connect4, go (9 x 9) or tictactoe.", choices=tuple(GAMES))
    model: str = option("", "--model", "-m", help="An AlphaZero file; without one, the search plays games at random.")
    pretrained: bool = option(False, "--pretrained/", help="Take an agent that comes along; see `polyak gallery`.")
    simulations: int = option(800, "--simulations", "-n", help="Simulations of each search.", at_least=1)
    second: bool = option(False, "--second", help="Let the search begin.")
    quiet: bool = option(False, "--quiet", help="Do not show the evaluation of the search.")
    seed: int = option(-1, "--seed", help="Of the search's draws; -1: another one each time.")


def play(options: PlayOptions) -> float | None:
    """Play; returns the person's result, 1, 0 or -1, or None if the person left.

    Raises ZooError for an unknown game, a number out of range, or a file that does not hold a model of the game.
    """
    game = GAMES[options.game]()
    return _GameTable(game, _search(options, game), options).sit_down()


def _search(options: PlayOptions, game: Game) -> Search:
    from polyak.algorithms.alphazero import AlphaZero
    from polyak.algorithms.search.mcts import MCTS

    path = _pretrained(options) if options.pretrained else options.model
    if not path:
        search = MCTS(game, simulations=options.simulations, seed=None if options.seed < 0 else options.seed)
        return search.search
    if not Path(path).exists() and not Path(f"{path}.zip").exists():
        raise ZooError(f"--model {path!r}: there is no such file. Train one: AlphaZero(...).save(path).")
    with usage_errors(f"Cannot play by --model {path!r}"):
        model = AlphaZero.load(path, env=game, device="cpu")
    return lambda positions: model.look_ahead(positions, options.simulations)


def _pretrained(options: PlayOptions) -> str:
    """Return the file of the game's pretrained agent."""
    if options.model:
        raise ZooError(f"--pretrained and --model {options.model!r} exclude each other. Give one of them.")
    found = AGENTS / "alphazero" / f"{options.game}_1" / f"{options.game}.zip"
    if not found.exists():
        raise ZooError(f"No agent of {options.game} comes along. `polyak gallery` lists those that do.")
    return str(found)


class _GameTable:
    """A game between a person and a search."""

    def __init__(self, game: Game, search: Search, options: PlayOptions) -> None:
        self.game, self.search, self.options = game, search, options

    def sit_down(self) -> float | None:
        position, persons = self.game.start(1), not self.options.second
        print(f"You are {'X, and begin' if persons else 'O'}. Type a move, ? for advice, or q to leave.\n")
        marks = "XO."
        while True:
            self._show(position, marks)
            if not np.isnan(worth := self.game.outcome(position)[0]):
                result = float(worth if persons else -worth)
                print({1.0: "You have won.", -1.0: "You have lost."}.get(result, "A draw."))
                return result
            move = self._ask(position) if persons else self._think(position)
            if move is None:
                print("Until next time.")
                return None
            position, persons = self.game.play(position, np.array([move])), not persons
            marks = marks[1] + marks[0] + marks[2]

    def _show(self, position: np.ndarray, marks: str) -> None:
        print(self.game.text(position[0], marks) + "\n")

    def _ask(self, position: np.ndarray) -> int | None:
        """The person's move; None: left."""
        moves = {self.game.move_text(int(m)): int(m) for m in np.flatnonzero(self.game.legal(position)[0])}
        while True:
            try:
                answer = input(f"Your move ({', '.join(moves)}): ").strip().lower()
            except (EOFError, KeyboardInterrupt):
                print()
                return None
            if answer in ("q", "quit", "exit"):
                return None
            if answer == "?":
                self._opinion(self.search(position), "Advice")
            elif answer in moves:
                print()
                return moves[answer]
            else:
                print(f"{answer!r} is no move here. There are {', '.join(moves)}.")

    def _think(self, position: np.ndarray) -> int:
        found = self.search(position)
        move = int(found.moves[0])
        if not self.options.quiet:
            self._opinion(found, "It thinks")
        print(f"It plays {self.game.move_text(move)}.\n")
        return move

    def _opinion(self, found: Any, title: str) -> None:
        """Print the evaluation of a search: the mover's expected points, and the visits and value of each move."""
        print(f"{title}: {_percent((1 + found.values[0]) / 2)} of the points for the player to move.")
        for move in np.argsort(-found.policy[0], kind="stable"):
            if found.visits[0, move] > 0:
                share, worth = found.policy[0, move], (1 + found.q[0, move]) / 2
                bar = "#" * round(20 * float(share))
                print(f"  {self.game.move_text(int(move)):>3} {_percent(share):>6} {bar:<20} worth {_percent(worth)}")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
