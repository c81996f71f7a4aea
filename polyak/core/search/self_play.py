"""Many games at once, both sides of which are played by one search; and matches between two.

Shapes: G games, L moves of the longest game, P numbers of an observation, A moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from polyak.core.search import rules
from polyak.core.search.mcts import MCTS, Found
from polyak.core.search.trees import Trees
from polyak.envs.games.game import Game


class Ended(NamedTuple):
    """Games that ended with a move: all N of their positions, one game after another."""

    observations: np.ndarray
    """[N, *observation_shape]"""
    policies: np.ndarray
    """[N, A]"""
    legal: np.ndarray
    """[N, A]"""
    values: np.ndarray
    """[N] how the game ended for the player to move."""
    lengths: np.ndarray
    """Moves of each game."""
    results: np.ndarray
    """What each game was worth to the player who began it."""


class SelfPlay:
    """Plays G games at once, and begins another one where one has ended.

    Args:
        search: of moves.
        n_games: G.
        warm_moves: of each game are drawn by visits; the others are the best.
        keeps_trees: whether a search goes on with what the one before it found out.
    """

    def __init__(self, search: MCTS, n_games: int, warm_moves: int, keeps_trees: bool = True) -> None:
        self.search, self.warm_moves, self.keeps_trees = search, warm_moves, keeps_trees
        game = search.game
        self.positions, self.plies = game.start(n_games), np.zeros(n_games, np.int64)
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
        self.positions[over], self.plies[over] = game.start(len(over)), 0
        self.trees = self.search.renewed(found.trees, moves, self.positions) if self.keeps_trees else None
        return ended

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
        """All that it takes to go on; nothing of games whose positions are objects, which begin anew."""
        if self.positions.dtype == object:
            return {}
        names = "positions", "plies", "seen", "policies", "legal"
        trees = {} if self.trees is None else self.trees.state()
        return {**{name: getattr(self, name) for name in names}, **{f"trees/{k}": v for k, v in trees.items()}}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Take back what :meth:`state` returned."""
        trees = {name[6:]: value for name, value in state.items() if name.startswith("trees/")}
        for name in state.keys() - {f"trees/{name}" for name in trees}:
            setattr(self, name, np.array(state[name]))
        self.trees = Trees.from_state(trees, self.search.game.discount) if trees else None


def match(one: MCTS, other: MCTS, n_games: int, openings: int = 2) -> float:
    """Points in [0, n_games] that ``one`` makes against ``other``; it begins every second game.

    Args:
        one, other: of the same game.
        n_games: how many.
        openings: moves at the start of each game that chance makes, so that games differ. Each opening is played twice,
            once with either player to move.
    """
    game = one.game
    positions = _openings(game, -(-n_games // 2), openings, one.random)
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
        points += float(((1 + np.where(turn, -outcome, outcome)[over]) / 2).sum())  # of who was to move before
        positions, playing = positions[~over], playing[~over]
    return points


def _openings(game: Game, n: int, moves: int, random: Any) -> np.ndarray:
    """[n, ...] positions after some moves by chance, in which the game goes on."""
    positions = game.start(n)
    for _ in range(moves):
        after = game.play(positions, rules.draw(game.legal(positions).astype(float), random))
        going = np.isnan(game.outcome(after))
        positions = np.where(going.reshape(-1, *[1] * (after.ndim - 1)), after, game.start(n))
    return positions
