"""Many search trees as arrays, without an object per node; every operation is vectorised over all trees.

Shapes: B trees of M places each, with nodes numbered b M + i and the root at i = 0; A moves; E any nodes.

A node stores the move that it visits next. That depends only on its own statistics, which change only when a simulation
is backed up through it: a descent follows stored moves, and afterwards all nodes of a path choose again together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Rule = Callable[["Trees", np.ndarray], np.ndarray]
"""Scores [E, A] of the moves of nodes [E]; the largest is visited next."""
NONE = -1
"""No node."""
_ARRAYS = "positions", "visits", "totals", "priors", "values", "rewards", "over", "chosen", "moves"
"""Arrays by node, except those that hold node numbers."""
_NODES = "children", "ahead", "parents"


class Path(NamedTuple):
    """One descent in each tree."""

    rows: np.ndarray
    """[E] the tree of each node on the path."""
    nodes: np.ndarray
    """[E] the nodes, the roots first."""
    depths: np.ndarray
    """[E] their depths."""
    last: np.ndarray
    """[B] the last nodes: terminal ones, or ones whose next move has not been expanded."""
    lengths: np.ndarray
    """[B] their depths."""


class Trees:
    """The arrays of all trees, and operations on them.

    Args:
        roots: positions [B, ...].
        n_moves: A.
        capacity: M.
        discount: factor of a node's value for the player that moved there: -1 for two players.
    """

    def __init__(self, roots: np.ndarray, n_moves: int, capacity: int, discount: float = -1.0) -> None:
        size = len(roots) * capacity
        self.n, self.n_moves, self.capacity = len(roots), n_moves, capacity
        self.roots = np.arange(self.n) * capacity
        """[B] indices of the roots."""
        self.counts = np.ones(self.n, np.int64)
        """[B] number of places taken."""
        self.positions = np.empty((size, *roots.shape[1:]), roots.dtype)
        self.positions[self.roots] = roots
        self.visits = np.zeros((size, n_moves), np.float32)
        """Visit counts of moves."""
        self.totals = np.zeros((size, n_moves), np.float32)
        """Sums of backed-up values, for the player to move."""
        self.priors = np.full((size, n_moves), -np.inf, np.float32)
        """Prior probabilities of moves; -inf for illegal moves."""
        self.children = np.full((size, n_moves), NONE, np.int64)
        """The child node of each move."""
        self.parents = np.full(size, NONE, np.int64)
        """The parent node."""
        self.moves = np.zeros(size, np.int64)
        """The move from the parent to the node."""
        self.values = np.zeros(size, np.float32)
        """The evaluator's value of a node, or the outcome if the game is over."""
        self.rewards = np.zeros(size, np.float32)
        """Immediate reward of the move into a node."""
        self.over = np.zeros(size, bool)
        """Whether a node needs no search: the game is over, or its outcome is proven."""
        self.chosen = np.zeros(size, np.int64)
        """The move that is visited next."""
        self.ahead = np.full(size, NONE, np.int64)
        """The child node of that move; NONE if not expanded."""
        self.discount, self.two_sided = discount, discount < 0
        self.low, self.high = np.full(self.n, np.inf, np.float32), np.full(self.n, -np.inf, np.float32)
        """[B] the smallest and the largest return in each one-player tree, whose returns may have any scale."""

    def choose(self, nodes: np.ndarray, rule: Rule) -> None:
        """Choose the move that nodes [E] visit next."""
        self.take(nodes, rule(self, nodes).argmax(1))

    def take(self, nodes: np.ndarray, moves: np.ndarray) -> None:
        """Set the moves [E] that nodes [E] visit next."""
        self.chosen[nodes] = moves
        self.ahead[nodes] = self.children[nodes, moves]

    def descend(self) -> Path:
        """Follow the stored moves from all roots to unexpanded ones."""
        rows, nodes, last = np.arange(self.n), self.roots, self.roots.copy()
        lengths = np.zeros(self.n, np.int64)
        ways, depth = [(rows, nodes)], 0
        while len(rows):
            ahead = self.ahead.take(nodes)
            on = ahead >= 0
            if not on.all():
                rows, ahead = rows[on], ahead[on]
                if len(rows) == 0:
                    break
            nodes, depth = ahead, depth + 1
            last[rows], lengths[rows] = nodes, depth
            ways.append((rows, nodes))
        all_rows, all_nodes = (np.concatenate(part) for part in zip(*ways, strict=True))
        depths = np.repeat(np.arange(len(ways)), [len(rows) for rows, _ in ways])
        return Path(all_rows, all_nodes, depths, last, lengths)

    def add(self, parents: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Add a node [E] for the next move of each parent [E], one in each tree; returns their indices."""
        rows = parents // self.capacity
        nodes = self.roots[rows] + self.counts[rows]
        self.counts[rows] += 1
        self.positions[nodes] = positions
        self.parents[nodes], self.moves[nodes] = parents, self.chosen[parents]
        self.children[parents, self.moves[nodes]] = nodes
        return nodes

    def back_up(self, path: Path, worth: np.ndarray) -> np.ndarray:
        """Back up values along the paths; returns the nodes whose scores have changed.

        Args:
            path: the paths.
            worth: [B] value of the last node of each path for the player to move there.
        """
        over = self.over[path.last]
        steps = (path.lengths + ~over)[path.rows] - path.depths
        if over.any():  # these have no children
            going = steps > 0
            path, steps = path._replace(rows=path.rows[going], nodes=path.nodes[going]), steps[going]
        gains = worth[path.rows] * np.power(np.float32(self.discount), steps, dtype=np.float32)
        if not self.two_sided:
            gains += self._rewards_ahead(path.rows, path.nodes)
            np.minimum.at(self.low, path.rows, gains)
            np.maximum.at(self.high, path.rows, gains)
        edges = path.nodes, self.chosen[path.nodes]
        self.visits[edges] += 1
        self.totals[edges] += gains
        return path.nodes if self.two_sided else np.flatnonzero(self.priors.max(1) >= 0)  # bounds may have changed

    def _rewards_ahead(self, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Returns discounted sums of rewards [E] from each node on, along the paths."""
        earned = self.rewards[self.children[nodes, self.chosen[nodes]]]
        sums, after = np.zeros_like(earned), np.zeros(self.n, np.float32)
        for i in range(len(nodes) - 1, -1, -1):  # nodes are sorted by depth
            after[rows[i]] = sums[i] = earned[i] + self.discount * after[rows[i]]
        return sums

    def scaled(self, nodes: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Scales mean values [E, A] of one-player moves to [0, 1] by the bounds of their trees; two-player values are
        unchanged."""
        if self.two_sided:
            return q
        rows = nodes // self.capacity
        low, span = self.low[rows, None], (self.high - self.low)[rows, None]
        return np.where(span > 0, np.clip((q - low) / np.where(span > 0, span, 1), 0, 1), 0.5)

    def prove(self, nodes: np.ndarray) -> None:
        """Back up proven outcomes from nodes [E], at most one in each tree: MCTS-Solver, Winands et al. 2008.

        A node with a move to a proven loss of the opponent is a proven win; if all moves are proven, the best one is
        the outcome. Moves that are proven losses are no longer visited. Roots are not changed.
        """
        nodes = nodes[self.over[nodes]]
        while len(nodes):
            above = self.parents[nodes]
            self.totals[above, self.moves[nodes]] = -self.values[nodes] * self.visits[above, self.moves[nodes]]
            below_root = self.parents[above] != NONE
            above, nodes = above[below_root], nodes[below_root]
            lost = self.values[nodes] == 1
            self.priors[above[lost], self.moves[nodes[lost]]] = -np.inf  # no longer visited
            children = self.children[above]
            certain = (children != NONE) & self.over[children]
            worth = np.where(certain, -self.values[children], -np.inf).max(1)
            proven = (worth == 1) | (certain | (self.priors[above] < 0)).all(1)
            nodes = above[proven]
            self.over[nodes], self.values[nodes], self.ahead[nodes] = True, worth[proven], NONE

    # -- from one move to the next -------------------------------------------------------------------------------------

    def below(self, roots: np.ndarray, room: int) -> Trees:
        """Returns the subtrees of nodes [B], with ``room`` for more nodes; a root NONE gives an empty tree."""
        old, width = self._descendants(roots), self.capacity
        trees = old // width
        counts = np.bincount(trees, minlength=self.n)
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        shape = (self.n, *self.positions.shape[1:])
        kept = Trees(
            np.empty(shape, self.positions.dtype), self.n_moves, int(counts.max(initial=1)) + room, self.discount
        )
        new = kept.roots[trees] + np.arange(len(old)) - firsts[trees]
        kept.counts, kept.low, kept.high = np.maximum(counts, 1), self.low.copy(), self.high.copy()
        for name in _ARRAYS:
            getattr(kept, name)[new] = getattr(self, name)[old]
        renamed = np.full(len(self.values) + 1, NONE, np.int64)  # the last place is for NONE
        renamed[old] = new
        for name in _NODES:
            getattr(kept, name)[new] = renamed[getattr(self, name)[old]]
        return kept

    def state(self) -> dict[str, np.ndarray]:
        """Returns all arrays."""
        return {name: getattr(self, name) for name in (*_ARRAYS, *_NODES, "counts", "low", "high")}

    @classmethod
    def from_state(cls, state: dict[str, np.ndarray], discount: float) -> Trees:
        """Restores the trees of a :meth:`state`."""
        n, positions = len(state["counts"]), state["positions"]
        capacity = len(positions) // n
        trees = cls(positions[::capacity], state["visits"].shape[1], capacity, discount)
        for name, array in state.items():
            setattr(trees, name, np.array(array))
        return trees

    def _descendants(self, roots: np.ndarray) -> np.ndarray:
        """Returns the nodes [E] of the subtrees of some nodes, in index order, so that parents come first."""
        kept, level = np.zeros(len(self.values), bool), roots[roots >= 0]
        while len(level):
            kept[level] = True
            level = self.children[level].reshape(-1)
            level = level[level >= 0]
        return np.flatnonzero(kept)
