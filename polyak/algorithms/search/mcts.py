"""Monte Carlo tree search (MCTS).

UCT: Kocsis and Szepesvari 2006, "Bandit based Monte-Carlo Planning" (ECML). PUCT: Silver et al. 2018, "A general
reinforcement learning algorithm that masters chess, shogi, and Go through self-play" (Science 362, arXiv:1712.01815).
Root selection and improved policies of Gumbel MuZero: Danihelka et al. 2022, "Policy improvement by planning with
Gumbel" (ICLR).

Shapes: B positions, each with a tree of its own, A moves, E nodes of all trees. The arrays are in
:mod:`~polyak.algorithms.search.trees`, the formulas in :mod:`~polyak.algorithms.search.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from polyak.algorithms.search import rules
from polyak.algorithms.search.rollouts import Playouts
from polyak.algorithms.search.trees import NONE, Trees
from polyak.envs.games.copied import CopiedEnv
from polyak.envs.games.known import find_game
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive, declared, fitted

Evaluator = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Evaluates positions [E, ...] with legal moves [E, A]: returns priors of moves [E, A], and values [E] in [-1, 1] for
the player to move."""
Selection = Literal["uct", "puct", "gumbel"]


class Found(NamedTuple):
    """The result of a search of B positions."""

    moves: np.ndarray
    """[B] the best moves, counted from 0, even if an environment's actions start elsewhere."""
    policy: np.ndarray
    """[B, A] the improved policy: visit shares, or Gumbel MuZero's."""
    visits: np.ndarray
    """[B, A] visit counts."""
    q: np.ndarray
    """[B, A] mean values of moves for the player to move; NaN for unvisited ones."""
    values: np.ndarray
    """[B] values of the positions."""
    trees: Trees
    """The trees, from which the next search can continue."""


@dataclass(eq=False, repr=False)
class MCTS:
    """Monte Carlo tree search of a game, or of an environment that can be copied.

    All trees grow together, one node in each of them at a time, so that many positions cost little more than one.
    Terminal positions have their exact outcome as value; two-player games are zero-sum.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """

    game: Any
    """``"connect4"``, ``"go"``, ``"tictactoe"``, a :class:`~polyak.envs.games.game.Game`, or an environment of
    Gymnasium."""
    evaluator: Evaluator | None = None
    """Evaluates new nodes: priors of moves and values of positions, for example by a network; ``None``: random
    rollouts."""
    simulations: Count = 400
    """Simulations of a search."""
    _: KW_ONLY
    selection: Selection | None = None
    """``"uct"``, ``"puct"`` or ``"gumbel"``; ``None``: UCT without an evaluator, PUCT with one."""
    exploration: NonNegative | None = None
    """Weight of exploration: the constant of PUCT, or UCT's for returns of range 1, which is doubled for games;
    ``None``: 1.25 and sqrt(2)."""
    exploration_base: Positive = 19652.0
    """Number of visits from which PUCT explores more."""
    first_play: Literal["zero", "parent"] = "parent"
    """PUCT's value of unvisited moves: 0, or that of their parent."""
    dirichlet_alpha: Positive | None = None
    """Concentration of the noise at the root, for searches with ``noise=True``; ``None``: 10 / number of moves."""
    dirichlet_fraction: Fraction = 0.25
    """Weight of the Dirichlet noise."""
    max_considered: Count = 16
    """Number of moves that Gumbel's root considers."""
    c_visit: NonNegative = 50.0
    """Visits added to the scale of values in Gumbel's policies, c_visit."""
    c_scale: Positive = 1.0
    """Scale of values in Gumbel's policies, c_scale."""
    solves: bool = True
    """Whether proven outcomes are backed up: forced wins and losses are not searched further, and have exact values
    (MCTS-Solver, Winands et al. 2008). For two players only."""
    rollouts: Count = 1
    """Random rollouts from each position, without an evaluator."""
    longest: Count | None = None
    """Moves after which a rollout is truncated; ``None``: the longest game, or 100 in an environment."""
    gamma: Fraction = 0.99
    """Discount factor, in an environment."""
    seed: int | None = None
    """Seed of the random generator; ``None`` uses numpy's global one."""

    def __post_init__(self) -> None:
        for name, declaration in declared(MCTS).items():
            setattr(self, name, fitted(name, getattr(self, name), declaration))
        alone = hasattr(self.game, "unwrapped") and hasattr(self.game, "step")
        self.game = CopiedEnv(self.game, self.gamma) if alone else find_game(self.game)
        self.random: Any = np.random if self.seed is None else np.random.default_rng(self.seed)
        if self.selection is None:
            self.selection = "uct" if self.evaluator is None else "puct"
        usual = 2**0.5 if self.selection == "uct" else 1.25
        self._curiosity = usual if self.exploration is None else self.exploration
        self._alpha = 10 / self.game.n_moves if self.dirichlet_alpha is None else self.dirichlet_alpha
        self._evaluator = self.evaluator or Playouts(self.game, self.rollouts, self.random, self.longest)

    # -- searching -----------------------------------------------------------------------------------------------------

    def search(
        self, positions: Any, simulations: int | None = None, *, trees: Trees | None = None, noise: bool = False
    ) -> Found:
        """Search from positions of games that are not over.

        Args:
            positions: [B, ...], such as ``game.start(B)``.
            simulations: of this search, in addition to those of reused trees; None: those of the constructor.
            trees: reused from an earlier search, by :meth:`after`.
            noise: explore at the root: Dirichlet noise, or Gumbel's.

        Raises:
            ValueError: a game is over, or ``simulations`` is less than 1.
        """
        count = self.simulations if simulations is None else simulations
        fitted("simulations", count, Count)
        if trees is None:
            trees = Trees(np.asarray(positions), self.game.n_moves, count + 1, self.game.discount)
            self._meet(trees, trees.roots)
        if trees.over[trees.roots].any():
            at = int(trees.over[trees.roots].argmax())
            raise ValueError(f"positions[{at}]: the game is over, there is nothing to search.")
        gumbel = self._begin(trees, noise)
        for i in range(count):
            if gumbel is not None:
                trees.take(trees.roots, gumbel.next(trees, i, count))
            self._simulate(trees)
        return self._found(trees, gumbel)

    def after(self, trees: Trees, moves: np.ndarray, simulations: int | None = None) -> Trees | None:
        """Returns the subtrees after moves [B], with room for another search.

        None if nothing can be reused: with Gumbel's root, and for unvisited moves.

        None where nothing can be reused: with Gumbel's root, and for moves that were not visited.
        """
        roots = trees.children[trees.roots, moves]
        if self.selection == "gumbel" or (roots == NONE).any() or trees.over[roots].any():
            return None
        return trees.below(roots, self.simulations if simulations is None else simulations)

    def renewed(self, trees: Trees, moves: np.ndarray, positions: np.ndarray) -> Trees | None:
        """Returns subtrees like :meth:`after`; trees of games that have ended or started again begin from
        ``positions``."""
        if self.selection == "gumbel":
            return None
        roots = trees.children[trees.roots, moves]
        known = roots != NONE
        known[known] &= ~trees.over[roots[known]]
        kept = trees.below(np.where(known, roots, NONE), self.simulations)
        fresh = kept.roots[~known]
        if len(fresh):
            kept.positions[fresh] = positions[~known]
            self._meet(kept, fresh)
        return kept

    def choose(self, positions: Any, simulations: int | None = None, temperature: float = 0.0) -> np.ndarray:
        """Returns moves [B], counted from 0, for positions [B, ...]: the best, or drawn by visits to the power of 1 /
        temperature."""
        found = self.search(positions, simulations)
        return found.moves if temperature == 0 else rules.draw(rules.tempered(found.visits, temperature), self.random)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        simulations: int | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Returns the move for an observation of :meth:`Game.observe`, or for a batch; for an environment, its action.

        Args:
            observation: [*observation_shape] or [B, *observation_shape]; for an environment, the environment itself in
                its present state.
            state, episode_start: ignored; ``state`` is returned.
            deterministic: the best move; False draws in proportion to visits.
            simulations: as in :meth:`search`.
        """
        single, positions = read_observation(self.game, observation)
        moves = self.game.as_actions(self.choose(positions, simulations, 0.0 if deterministic else 1.0))
        return (moves[0] if single else moves), state

    # -- one simulation ------------------------------------------------------------------------------------------------

    def _simulate(self, trees: Trees) -> None:
        """Add one node to each tree."""
        path = trees.descend()
        parents = path.last[~trees.over[path.last]]
        ends = path.last
        if len(parents):
            after = self.game.play(trees.positions[parents], trees.chosen[parents])
            nodes = trees.add(parents, after)
            self._meet(trees, nodes)
            ends = ends.copy()
            ends[parents // trees.capacity] = nodes
        changed = trees.back_up(path, trees.values[ends])
        if self.solves and trees.two_sided:
            trees.prove(ends)
            changed = changed[~trees.over[changed]]
        trees.choose(changed, self._rule)

    def _meet(self, trees: Trees, nodes: np.ndarray) -> None:
        """Evaluate new nodes [E], and choose the move that is visited first below each."""
        positions = trees.positions[nodes]
        outcome = self.game.outcome(positions)
        if (earned := self.game.rewards(positions)) is not None:
            trees.rewards[nodes] = earned
        going = np.isnan(outcome)
        trees.over[nodes], trees.values[nodes] = ~going, outcome
        if not going.all():
            nodes, positions = nodes[going], positions[going]
        if len(nodes) == 0:
            return
        legal = self.game.legal(positions)
        priors, trees.values[nodes] = self._evaluator(positions, legal)
        if self.selection == "uct":  # without priors: the first move is random
            priors = self.random.random(legal.shape)
        trees.priors[nodes] = priors = np.where(legal, priors, -np.inf)
        trees.chosen[nodes] = priors.argmax(1)  # the choice of every rule before the first visit

    def _rule(self, trees: Trees, nodes: np.ndarray) -> np.ndarray:
        """Returns the scores [E, A] of the moves of nodes [E], roots or below."""
        visits, totals, priors = trees.visits[nodes], trees.totals[nodes], trees.priors[nodes]
        if self.selection == "uct":
            q = trees.scaled(nodes, rules.means(visits, totals, 0.0))
            return rules.ucb(visits, q, priors, self._curiosity, 2.0 if trees.two_sided else 1.0)
        if self.selection == "puct":
            first: Any = 0.0
            if self.first_play == "parent":
                first = ((trees.values[nodes] + totals.sum(1)) / (1 + visits.sum(1)))[:, None]
            q = trees.scaled(nodes, rules.means(visits, totals, first))
            return rules.puct(visits, q, priors, self._curiosity, self.exploration_base)
        return rules.catching_up(visits, self._improved(trees, nodes))

    # -- Gumbel MuZero -------------------------------------------------------------------------------------------------

    def _raised(self, trees: Trees, nodes: np.ndarray) -> np.ndarray:
        """Returns ln P(a) + sigma(Q(a)) [E, A] of moves, with completed values of unvisited ones."""
        visits, priors = trees.visits[nodes], trees.priors[nodes]
        q = rules.completed(visits, rules.means(visits, trees.totals[nodes], 0.0), priors, trees.values[nodes])
        unit = (trees.scaled(nodes, q) + 1) / 2 if trees.two_sided else trees.scaled(nodes, q)
        return rules.logarithms(priors) + rules.raised(visits, unit, self.c_visit, self.c_scale)

    def _improved(self, trees: Trees, nodes: np.ndarray) -> np.ndarray:
        """Returns pi' = softmax(ln P + sigma(Q)), eq. 11. -> [E, A]"""
        return rules.softmax(self._raised(trees, nodes))

    def _begin(self, trees: Trees, noise: bool) -> _GumbelRoot | None:
        """Prepare the roots for a search."""
        if self.selection == "gumbel":
            shape = trees.n, trees.n_moves
            drawn = self.random.gumbel(size=shape) if noise else np.zeros(shape)
            return _GumbelRoot(drawn, self.max_considered, self._raised)
        if noise:
            priors = trees.priors[trees.roots]
            noisy = rules.with_noise(priors, self._alpha, self.dirichlet_fraction, self.random)
            trees.priors[trees.roots] = noisy
            trees.choose(trees.roots, self._rule)
        return None

    def _found(self, trees: Trees, gumbel: _GumbelRoot | None) -> Found:
        visits, totals = trees.visits[trees.roots], trees.totals[trees.roots]
        values: Any = (trees.values[trees.roots] + totals.sum(1)) / (1 + visits.sum(1))
        q = rules.means(visits, totals, np.nan)
        if gumbel is None:
            policy = visits / visits.sum(1, keepdims=True)
            best: Any = visits + np.where(visits > 0, 0.5 * _order(np.nan_to_num(q, nan=-np.inf)), 0)
        else:
            policy = self._improved(trees, trees.roots)
            values = (policy * np.where(visits > 0, q, values[:, None])).sum(1)
            best = np.where(visits == visits.max(1, keepdims=True), gumbel.scores(trees), -np.inf)
        if self.solves and trees.two_sided:
            behind = trees.children[trees.roots]
            decided = np.where((behind != NONE) & trees.over[behind], np.trunc(-trees.values[behind]), 0)
            best = best + decided * rules.FIRST  # proven wins first, proven losses last
            best = np.where(trees.priors[trees.roots] >= 0, best, -np.inf)
            values[decided.max(1) == 1] = 1
        return Found(best.argmax(1), policy, visits, q, values, trees)


class _GumbelRoot:
    """Sequential halving among moves selected by Gumbel noise (Algorithm 2).

    Args:
        noise: [B, A].
        most: number of moves considered.
        raised: computes ln P + sigma(Q) of nodes.
    """

    def __init__(self, noise: np.ndarray, most: int, raised: Callable[[Trees, np.ndarray], np.ndarray]) -> None:
        self.noise, self.most, self.raised = noise, most, raised
        self.due: np.ndarray | None = None

    def scores(self, trees: Trees) -> np.ndarray:
        """Returns g + ln P + sigma(Q). -> [B, A]"""
        return self.noise + self.raised(trees, trees.roots)

    def next(self, trees: Trees, i: int, simulations: int) -> np.ndarray:
        """Returns the moves [B] of simulation i."""
        if self.due is None:
            legal = (trees.priors[trees.roots] >= 0).sum(1)
            orders = np.stack([rules.halving(n, simulations) for n in range(self.most + 1)])
            self.due = orders[np.minimum(legal, self.most)]
        due = trees.visits[trees.roots] == self.due[:, i, None]
        return np.where(due, self.scores(trees), -np.inf).argmax(1)


def _order(values: np.ndarray) -> np.ndarray:
    """Returns ranks [B, A] in [0, 1), larger for larger values: they break ties between moves of equal visits."""
    return values.argsort(1).argsort(1) / values.shape[1]


def read_observation(game: Any, observation: Any) -> tuple[bool, np.ndarray]:
    """Returns whether an observation is a single one, and its positions [B, ...].

    Raises:
        ValueError: the shape is wrong.
    """
    if isinstance(game, CopiedEnv):
        return True, game.position(observation)
    array = np.asarray(observation)
    single = array.shape == game.observation_shape
    if not single and array.shape[1:] != game.observation_shape:
        raise ValueError(
            f"the observation has the shape {array.shape}; {game!r} has {game.observation_shape}, or a batch of these."
        )
    return single, game.read(array[None] if single else array)
