"""Self-play: many games in parallel, both sides played by one search; and matches between two searches.

Shapes: G games, L moves of the longest game, P entries of an observation, A moves.
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
    """Games that ended with the last move: all N of their positions, game by game."""

    observations: np.ndarray
    """[N, *observation_shape]"""
    policies: np.ndarray
    """[N, A]"""
    legal: np.ndarray
    """[N, A]"""
    values: np.ndarray
    """[N] the game's outcome for the player to move."""
    lengths: np.ndarray
    """Number of moves of each game, without random opening moves."""
    results: np.ndarray
    """The outcome of each game for the player of its first move after the opening."""


class SelfPlay:
    """Plays G games in parallel, and starts a new one whenever one has ended.

    A game starts after its opening: random opening moves are neither counted nor learned from.

    Args:
        search: chooses the moves.
        n_games: G.
        warm_moves: number of first moves of each game that are drawn in proportion to visits; later ones are the best.
        keeps_trees: whether a search reuses the previous one's subtrees.
        opening_moves: largest number of random moves before a game starts; the number is drawn uniformly from 0 for
            each game.

    Raises:
        HyperparameterError: ``opening_moves`` is not an integer of at least 0.
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
        """Returns initial positions [n, ...] of games, after their openings."""
        game, random = self.search.game, self.search.random
        if self.opening_moves == 0:  # without drawing random numbers
            return game.start(n)
        return openings(game, n, (random.random(n) * (self.opening_moves + 1)).astype(np.int64), random)

    def _moves(self, found: Found) -> np.ndarray:
        if self.search.selection == "gumbel":  # Gumbel noise has drawn among the best moves
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
        """Returns everything that is needed to resume; games whose positions are objects start again."""
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
    """Returns the points in [0, n_games] of ``one`` against ``other``; it begins every second game.

    Args:
        one, other: searches of the same game.
        n_games: number of games.
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
        points += float(((1 + np.where(turn, -outcome, outcome)[over]) / 2).sum())  # for the previous player
        positions, playing = positions[~over], playing[~over]
    return points


def openings(game: Game, n: int, moves: int | np.ndarray, random: Any) -> np.ndarray:
    """Returns positions [n, ...] after random moves, in which the game is not over.

    Each move is drawn from those that do not end the game. If all of them do, the opening is shorter.

    Args:
        game: the rules.
        n: number of positions.
        moves: of each opening: one number for all, or [n].
        random: the generator, such as ``np.random`` or a Generator.
    """
    positions, wanted = np.array(game.start(n)), np.broadcast_to(moves, n)
    for made in range(min(wanted.max(initial=0), game.longest)):
        rows = np.flatnonzero(wanted > made)
        positions[rows] = _one_further(game, positions[rows], random)
    return positions


def _one_further(game: Game, positions: np.ndarray, random: Any) -> np.ndarray:
    """Returns positions [R, ...] after one random move that does not end the game; unchanged if there is none."""
    further, left, rows = positions.copy(), np.array(game.legal(positions)), np.arange(len(positions))
    while len(rows):
        moves = rules.draw(left[rows].astype(float), random)
        after = game.play(positions[rows], moves)
        going = np.isnan(game.outcome(after))
        further[rows[going]] = after[going]
        left[rows, moves] = False
        rows = rows[~going & left[rows].any(1)]
    return further
