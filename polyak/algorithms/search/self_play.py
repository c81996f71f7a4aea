"""Self-play: many games at once, both sides played by one search; and matches between two searches.

Shapes: G games, L moves of the longest game, P numbers of an observation, A moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from polyak.algorithms.search import rules
from polyak.algorithms.search.mcts import MCTS, Found
from polyak.algorithms.search.trees import Trees
from polyak.arrays import under
from polyak.envs.games.game import Game
from polyak.hyperparameters.declaration import Natural, fitted


class Ended(NamedTuple):
    """Games that ended with a move: all N of their positions, one game after another."""

    observations: np.ndarray
    """[N, *observation_shape]"""
    policies: np.ndarray
    """[N, A]"""
    legal: np.ndarray
    """[N, A]"""
    values: np.ndarray
    """[N] the outcome of the game for the player to move."""
    lengths: np.ndarray
    """Moves of each game, without random opening moves."""
    results: np.ndarray
    """The outcome of each game for the player that made its first move after the opening."""


class SelfPlay:
    """Plays G games at once, and begins a new one where one has ended.

    A game begins after its opening: random opening moves are neither counted nor learned from.

    Args:
        search: of moves.
        n_games: G.
        warm_moves: first moves of each game that are drawn by visits; later ones are the best.
        keeps_trees: whether a search reuses the trees of the one before it.
        opening_moves: most random moves before a game begins; their number is drawn for each game, from 0 on.

    Raises:
        HyperparameterError: ``opening_moves`` is no integer of at least 0.
    """

    def __init__(
        self, search: MCTS, n_games: int, warm_moves: int, keeps_trees: bool = True, opening_moves: int = 0
    ) -> None:
        self.search, self.warm_moves, self.keeps_trees = search, warm_moves, keeps_trees
        self.opening_moves: int = fitted("opening_moves", opening_moves, Natural)
        game = search.game
        self.positions, self.plies = self._begun(n_games), np.zeros(n_games, np.int64)
        self.trees: Trees | None = None
        self.seen = np.zeros((n_games, game.longest, *game.observation_shape), np.float32)
        self.policies = np.zeros((n_games, game.longest, game.n_moves), np.float32)
        self.legal = np.zeros((n_games, game.longest, game.n_moves), bool)

    def move(self) -> Ended:
        """Make a move in every game."""
        game, each = self.search.game, np.arange(len(self.plies))
        found = self.search.search(self.positions, trees=self.trees, noise=True)
        self.seen[each, self.plies] = game.observe(self.positions)
        self.policies[each, self.plies] = found.policy
        self.legal[each, self.plies] = game.legal(self.positions)
        moves = self._moves(found)
        self.positions = game.play(self.positions, moves)
        self.plies += 1
        outcome = game.outcome(self.positions)
        over = np.flatnonzero(~np.isnan(outcome))
        ended = self._ended(over, outcome[over])
        self.positions[over], self.plies[over] = self._begun(len(over)), 0
        self.trees = self.search.renewed(found.trees, moves, self.positions) if self.keeps_trees else None
        return ended

    def _begun(self, n: int) -> np.ndarray:
        """[n, ...] positions in which games begin."""
        game, random = self.search.game, self.search.random
        if self.opening_moves == 0:  # and nothing is drawn
            return game.start(n)
        return openings(game, n, (random.random(n) * (self.opening_moves + 1)).astype(np.int64), random)

    def _moves(self, found: Found) -> np.ndarray:
        if self.search.selection == "gumbel":  # whose noise has chosen among the best
            return found.moves
        drawn = rules.draw(rules.tempered(found.visits, 1.0), self.search.random)
        return np.where(self.plies < self.warm_moves, drawn, found.moves)

    def _ended(self, over: np.ndarray, outcome: np.ndarray) -> Ended:
        lengths = self.plies[over]
        games, plies = np.repeat(over, lengths), np.concatenate([np.arange(0), *map(np.arange, lengths)])
        left = np.repeat(lengths, lengths) - plies
        discount = self.search.game.discount
        values = np.repeat(outcome, lengths) * np.power(discount, left)
        at = games, plies
        results = outcome * np.power(discount, lengths)
        return Ended(self.seen[at], self.policies[at], self.legal[at], values, lengths, results)

    # -- as arrays -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Everything that is needed to resume; games whose positions are objects begin again."""
        if self.positions.dtype == object:
            return {}
        names = "positions", "plies", "seen", "policies", "legal"
        trees = {} if self.trees is None else self.trees.state()
        return {**{name: getattr(self, name) for name in names}, **{f"trees/{k}": v for k, v in trees.items()}}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned."""
        trees = under("trees", state)
        for name in state.keys() - {f"trees/{name}" for name in trees}:
            setattr(self, name, np.array(state[name]))
        self.trees = Trees.from_state(trees, self.search.game.discount) if trees else None


def match(one: MCTS, other: MCTS, n_games: int, opening_moves: int = 2) -> float:
    """Points in [0, n_games] that ``one`` makes against ``other``; it begins every second game.

    Args:
        one, other: of the same game.
        n_games: how many.
        opening_moves: random moves at the start of each game, so that games differ. Each opening is played twice, with
            either player to move.
    """
    game = one.game
    positions = openings(game, -(-n_games // 2), opening_moves, one.random)
    positions = np.concatenate([positions, positions])[:n_games]
    begins = np.arange(n_games) < -(-n_games // 2)
    points, playing, moved = 0.0, np.arange(n_games), 0
    while len(playing):
        turn = begins[playing] == (moved % 2 == 0)
        moves = np.zeros(len(playing), np.int64)
        for player, mine in ((one, turn), (other, ~turn)):
            if mine.any():
                moves[mine] = player.search(positions[mine]).moves
        positions, moved = game.play(positions, moves), moved + 1
        outcome = game.outcome(positions)
        over = ~np.isnan(outcome)
        points += float(((1 + np.where(turn, -outcome, outcome)[over]) / 2).sum())  # to the player before
        positions, playing = positions[~over], playing[~over]
    return points


def openings(game: Game, n: int, moves: int | np.ndarray, random: Any) -> np.ndarray:
    """[n, ...] positions after random moves, in which the game is not over.

    Each move is drawn from those that do not end the game. Where all of them do, the opening is shorter.

    Args:
        game: the rules.
        n: how many.
        moves: of each opening: one number for all, or [n].
        random: the generator, such as ``np.random`` or a Generator.
    """
    positions, wanted = np.array(game.start(n)), np.broadcast_to(moves, n)
    for made in range(min(wanted.max(initial=0), game.longest)):
        rows = np.flatnonzero(wanted > made)
        positions[rows] = _one_further(game, positions[rows], random)
    return positions


def _one_further(game: Game, positions: np.ndarray, random: Any) -> np.ndarray:
    """[R, ...] positions after one random move that does not end the game; unchanged where there is none."""
    further, left, rows = positions.copy(), np.array(game.legal(positions)), np.arange(len(positions))
    while len(rows):
        moves = rules.draw(left[rows].astype(float), random)
        after = game.play(positions[rows], moves)
        going = np.isnan(game.outcome(after))
        further[rows[going]] = after[going]
        left[rows, moves] = False
        rows = rows[~going & left[rows].any(1)]
    return further
