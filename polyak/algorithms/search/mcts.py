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
from polyak.algorithms.search.rollouts import Rollouts
from polyak.algorithms.search.trees import NONE, Trees
from polyak.envs.games.copied import CopiedEnv
from polyak.envs.games.known import find_game
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive, declared, fitted

Judge = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Positions [E, ...] and their legal moves [E, A] -> how likely each move is to be good [E, A], and values [E] in
[-1, 1] to the player to move."""
Selection = Literal["uct", "puct", "gumbel"]


class Found(NamedTuple):
    """What a search says of B positions."""

    moves: np.ndarray
    """[B] the best, counted from 0 as in all arrays here, also where an environment's actions begin elsewhere."""
    policy: np.ndarray
    """[B, A] probabilities of good moves: shares of the visits, or Gumbel MuZero's improved policy."""
    visits: np.ndarray
    """[B, A] how often each move was looked at."""
    q: np.ndarray
    """[B, A] what came of it in the mean, to the player to move; NaN where it was not looked at."""
    values: np.ndarray
    """[B] what the positions are worth."""
    trees: Trees
    """All there is to know, and what the next search goes on with."""


@dataclass(eq=False, repr=False)
class MCTS:
    """Monte Carlo tree search of a game, or of an environment that can be copied.

    All trees grow together, one node in each of them at a time, so that many positions at once cost little more than
    one. Games that are over are worth what they are worth, for certain; what one player gains the other loses.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """

    game: Any
    """``"connect4"``, ``"go"``, ``"tictactoe"``, a :class:`~polyak.envs.games.game.Game`, or an environment of
    Gymnasium."""
    judge: Judge | None = None
    """What says how good moves and positions are that nobody has looked behind, such as a network; ``None``: games
    played at random."""
    simulations: Count = 400
    """Nodes that each search looks at."""
    _: KW_ONLY
    selection: Selection | None = None
    """``"uct"``, ``"puct"`` or ``"gumbel"``; ``None``: UCT without a judge, PUCT with one."""
    exploration: NonNegative | None = None
    """How much curiosity weighs: the constant of PUCT, or UCT's for returns that span 1, which is doubled for those of
    games; ``None``: 1.25 and sqrt(2)."""
    exploration_base: Positive = 19652.0
    """Visits after which PUCT grows more curious."""
    first_play: Literal["zero", "parent"] = "parent"
    """What PUCT thinks of moves that were not looked at: that they are worth nothing, or as much as their parent."""
    dirichlet_alpha: Positive | None = None
    """Concentration of the noise at the root, for searches with ``noise=True``; ``None``: 10 / number of moves."""
    dirichlet_fraction: Fraction = 0.25
    """Weight of that noise."""
    max_considered: Count = 16
    """Moves that Gumbel's root tries out."""
    c_visit: NonNegative = 50.0
    """How many visits Gumbel's policies take values to be worth from the first."""
    c_scale: Positive = 1.0
    """How much Gumbel's policies trust values."""
    solves: bool = True
    """Whether certainty about ends travels upwards: what is won or lost by force is not looked into any further, and
    not taken for something else (MCTS-Solver, Winands et al. 2008). Of two players only."""
    rollouts: Count = 1
    """Games played at random from each position, without a judge."""
    longest: Count | None = None
    """Moves after which those are given up; ``None``: the longest that the game can last, or 100 in an environment."""
    gamma: Fraction = 0.99
    """Discount factor, in an environment."""
    seed: int | None = None
    """Of all draws; ``None`` takes numpy's global stream."""

    def __post_init__(self) -> None:
        for name, declaration in declared(MCTS).items():
            setattr(self, name, fitted(name, getattr(self, name), declaration))
        alone = hasattr(self.game, "unwrapped") and hasattr(self.game, "step")
        self.game = CopiedEnv(self.game, self.gamma) if alone else find_game(self.game)
        self.random: Any = np.random if self.seed is None else np.random.default_rng(self.seed)
        if self.selection is None:
            self.selection = "uct" if self.judge is None else "puct"
        usual = 2**0.5 if self.selection == "uct" else 1.25
        self._curiosity = usual if self.exploration is None else self.exploration
        self._alpha = 10 / self.game.n_moves if self.dirichlet_alpha is None else self.dirichlet_alpha
        self._judge = self.judge or Rollouts(self.game, self.rollouts, self.random, self.longest)

    # -- searching -----------------------------------------------------------------------------------------------------

    def search(
        self, positions: Any, simulations: int | None = None, *, trees: Trees | None = None, noise: bool = False
    ) -> Found:
        """Look ahead from positions in which the game goes on.

        Args:
            positions: [B, ...], such as ``game.start(B)``.
            simulations: of this search, besides those that kept trees hold; None: those of the constructor.
            trees: what :meth:`after` kept of an earlier search.
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
        """What trees know of the positions after moves [B], with room for another search.

        None where nothing can be kept: Gumbel's root begins anew, and so does a tree that never looked at its move.
        """
        roots = trees.children[trees.roots, moves]
        if self.selection == "gumbel" or (roots == NONE).any() or trees.over[roots].any():
            return None
        return trees.below(roots, self.simulations if simulations is None else simulations)

    def renewed(self, trees: Trees, moves: np.ndarray, positions: np.ndarray) -> Trees | None:
        """As :meth:`after` in games of which some have ended or begun anew: those trees start from ``positions``."""
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
        """Moves [B], counted from 0, for positions [B, ...]: the best, or drawn by visits to the power of
        1 / temperature."""
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
        """The move for what :meth:`Game.observe` says of a position, or for a batch of such; of an environment, the
        action as it takes it.

        Args:
            observation: [*observation_shape] or [B, *observation_shape]; of an environment, the environment itself as
                it stands.
            state, episode_start: handed back, and ignored.
            deterministic: the best move; False draws by visits.
            simulations: as in :meth:`search`.
        """
        single, positions = read_observation(self.game, observation)
        moves = self.game.as_actions(self.choose(positions, simulations, 0.0 if deterministic else 1.0))
        return (moves[0] if single else moves), state

    # -- one simulation ------------------------------------------------------------------------------------------------

    def _simulate(self, trees: Trees) -> None:
        """Look at one more node in each tree."""
        path = trees.descend()
        parents = path.last[~trees.over[path.last]]
        ends = path.last
        if len(parents):
            after = self.game.play(trees.positions[parents], trees.chosen[parents])
            nodes = trees.add(parents, after)
            self._meet(trees, nodes)
            ends = ends.copy()
            ends[parents // trees.capacity] = nodes
        told = trees.back_up(path, trees.values[ends])
        if self.solves and trees.two_sided:
            trees.prove(ends)
            told = told[~trees.over[told]]
        trees.choose(told, self._rule)

    def _meet(self, trees: Trees, nodes: np.ndarray) -> None:
        """Say what new nodes [E] are worth, and what to look at behind them."""
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
        priors, trees.values[nodes] = self._judge(positions, legal)
        if self.selection == "uct":  # which has no use for them: chance says what to look at first
            priors = self.random.random(legal.shape)
        trees.priors[nodes] = priors = np.where(legal, priors, -np.inf)
        trees.chosen[nodes] = priors.argmax(1)  # as every rule has it as long as nothing was looked at

    def _rule(self, trees: Trees, nodes: np.ndarray) -> np.ndarray:
        """Scores [E, A] of the moves of nodes [E], at roots and below."""
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
        """ln P(a) + sigma(Q(a)) [E, A] of moves, those that were not looked at completed."""
        visits, priors = trees.visits[nodes], trees.priors[nodes]
        q = rules.completed(visits, rules.means(visits, trees.totals[nodes], 0.0), priors, trees.values[nodes])
        unit = (trees.scaled(nodes, q) + 1) / 2 if trees.two_sided else trees.scaled(nodes, q)
        return rules.logarithms(priors) + rules.raised(visits, unit, self.c_visit, self.c_scale)

    def _improved(self, trees: Trees, nodes: np.ndarray) -> np.ndarray:
        """pi' = softmax(ln P + sigma(Q)), eq. 11. -> [E, A]"""
        return rules.softmax(self._raised(trees, nodes))

    def _begin(self, trees: Trees, noise: bool) -> _GumbelRoot | None:
        """What happens to roots before a search."""
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
            best = best + decided * rules.FIRST  # what wins for certain before, what loses so after all else
            best = np.where(trees.priors[trees.roots] >= 0, best, -np.inf)
            values[decided.max(1) == 1] = 1
        return Found(best.argmax(1), policy, visits, q, values, trees)


class _GumbelRoot:
    """Sequential halving among moves that Gumbel noise has picked (Algorithm 2).

    Args:
        noise: [B, A].
        most: moves that are considered.
        raised: ln P + sigma(Q) of nodes.
    """

    def __init__(self, noise: np.ndarray, most: int, raised: Callable[[Trees, np.ndarray], np.ndarray]) -> None:
        self.noise, self.most, self.raised = noise, most, raised
        self.due: np.ndarray | None = None

    def scores(self, trees: Trees) -> np.ndarray:
        """g + ln P + sigma(Q). -> [B, A]"""
        return self.noise + self.raised(trees, trees.roots)

    def next(self, trees: Trees, i: int, simulations: int) -> np.ndarray:
        """The moves [B] of simulation i."""
        if self.due is None:
            legal = (trees.priors[trees.roots] >= 0).sum(1)
            orders = np.stack([rules.halving(n, simulations) for n in range(self.most + 1)])
            self.due = orders[np.minimum(legal, self.most)]
        due = trees.visits[trees.roots] == self.due[:, i, None]
        return np.where(due, self.scores(trees), -np.inf).argmax(1)


def _order(values: np.ndarray) -> np.ndarray:
    """[B, A] ranks in [0, 1), the greater the better: they decide between moves of as many visits."""
    return values.argsort(1).argsort(1) / values.shape[1]


def read_observation(game: Any, observation: Any) -> tuple[bool, np.ndarray]:
    """Whether an observation is a single one, and the positions [B, ...] that it is, or they are, of.

    Raises:
        ValueError: its shape is another.
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
