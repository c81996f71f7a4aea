"""AlphaGo's pipeline on Connect-4: imitate, improve by self-play, learn values, search with all of it.

    python examples/games/alphago.py                                                   # some minutes on one core
    python examples/games/alphago.py --games 16 --updates 20 --selfplay 4 --values 64 --matches 8    # does it run?

Silver et al. 2016, "Mastering the game of Go with deep neural networks and tree search" (Nature 529), whose numbers the
equations have. Four stages, each with a match against the one before:

1. A policy imitates recorded games (here of a tree search without a network), eq. 1. So does a linear one, the fast
   policy of rollouts.
2. Policy gradients improve a copy of it in games against its past selves, eq. 2.
3. A value network learns how games of that policy end, by regression, eq. 3. One position of each game is kept: the
   positions of one game share their result, and a network that sees them all learns to recognise games.
4. A tree search has the imitating policy as its prior, and values leaves by (1 - lambda) v(s) + lambda z, eq. 6, where
   z is the result of a rollout by the fast policy. The imitating policy is the prior rather than the improved one, as
   in the paper: it spreads over more of the good moves.

Percentages are points of the matches, a draw being half of one, with the standard error of as many independent games.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from polyak import MCTS
from polyak.envs.games.connect4 import Connect4

GAME = Connect4()
Player = Callable[[np.ndarray], np.ndarray]
"""Positions [B, 2] -> moves [B]."""


class Played(NamedTuple):
    """All M positions of some games."""

    positions: np.ndarray
    """[M, 2]"""
    moves: np.ndarray
    """[M]"""
    first: np.ndarray
    """[M] bool, whether the player who moved first in the game is to move."""
    results: np.ndarray
    """[M] how the game ended for the player to move: 1 won, 0 drawn, -1 lost."""
    to_first: np.ndarray
    """[G] how each game ended for the player who moved first."""


def play(one: Player, other: Player, positions: np.ndarray) -> Played:
    """Games from positions [G, 2] to their ends; `one` makes the first move."""
    games, to_first = np.arange(len(positions)), np.zeros(len(positions), np.float32)
    rows: list[tuple[np.ndarray, ...]] = []
    while len(games):
        is_first = len(rows) % 2 == 0
        moves = (one if is_first else other)(positions)
        rows.append((positions, moves, np.full(len(games), is_first), games))
        positions = GAME.play(positions, moves)
        outcome = GAME.outcome(positions)  # to the player who moves next
        over = ~np.isnan(outcome)
        to_first[games[over]] = -outcome[over] if is_first else outcome[over]
        positions, games = positions[~over], games[~over]
    seen, moved, first, of = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Played(seen, moved, first, np.where(first, to_first[of], -to_first[of]), to_first)


def at_random(positions: np.ndarray) -> np.ndarray:
    """The player to whom all legal moves are alike."""
    return np.where(GAME.legal(positions), np.random.random((len(positions), GAME.n_moves)), -1).argmax(1)


def openings(n: int, longest: int) -> np.ndarray:
    """[n, 2] positions after up to `longest` random moves, in which the game is not over."""
    positions, wanted = GAME.start(n), np.random.randint(longest + 1, size=n)
    for made in range(longest):
        rows = np.flatnonzero(wanted > made)
        after = GAME.play(positions[rows], at_random(positions[rows]))
        goes_on = np.isnan(GAME.outcome(after))
        positions[rows[goes_on]] = after[goes_on]
    return positions


def match(one: Player, other: Player, n: int) -> str:
    """The points of `one` in n games: every opening is played twice, once by each side."""
    starts = openings(n // 2, 4)
    results = np.concatenate([play(one, other, starts).to_first, -play(other, one, starts).to_first])
    return f"{50 * (1 + results.mean()):.0f} % +- {50 * results.std() / len(results) ** 0.5:.0f}"


# -- networks ----------------------------------------------------------------------------------------------------------


def network(outputs: int) -> nn.Sequential:
    """Planes [B, 2, 6, 7] -> [B, outputs]: windows of four by four hold every line of four."""
    hidden = nn.Sequential(nn.Conv2d(2, 64, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 3 * 4, 128), nn.ReLU())
    return nn.Sequential(hidden, nn.Linear(128, outputs))


def linear(outputs: int) -> nn.Sequential:
    """Planes [B, 2, 6, 7] -> [B, outputs]"""
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * 6 * 7, outputs))


def planes(positions: np.ndarray) -> Tensor:
    return torch.from_numpy(GAME.observe(positions))


def mirrored(positions: np.ndarray) -> np.ndarray:
    """The positions [B, 2] in which left is right: the same game."""
    return GAME.read(GAME.observe(positions)[..., ::-1])


def log_p(policy: nn.Module, positions: np.ndarray) -> Tensor:
    """ln p(a | s) over legal moves: positions [B, 2] -> [B, 7]"""
    illegal = ~torch.from_numpy(GAME.legal(positions))
    logits: Tensor = policy(planes(positions))
    return logits.masked_fill(illegal, -1e9).log_softmax(1)


def probabilities(policy: nn.Module, positions: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return log_p(policy, positions).exp().numpy()


def drawing(policy: nn.Module) -> Player:
    """The player who draws moves from a policy."""

    def moves(positions: np.ndarray) -> np.ndarray:
        limits = probabilities(policy, positions).cumsum(1)
        return (np.random.random((len(positions), 1)) * limits[:, -1:] < limits).argmax(1)

    return moves


def minimise(model: nn.Module, losses: Iterator[Tensor], learning_rate: float) -> nn.Module:
    """One step of Adam for each loss."""
    optimizer = torch.optim.Adam(model.parameters(), learning_rate, weight_decay=1e-5)
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


# -- stages ------------------------------------------------------------------------------------------------------------


def record(games: int, simulations: int, seed: int) -> Played:
    """Games of a tree search without a network against itself, from random openings, so that they differ."""
    search = MCTS(GAME, simulations=simulations, seed=seed)
    return play(search.choose, search.choose, openings(games, 10))


def imitate(policy: nn.Module, records: Played, updates: int) -> nn.Module:
    """Stage 1, eq. 1: gradient ascent on ln p(a | s) of recorded moves, each seen as it is or in a mirror."""

    def losses() -> Iterator[Tensor]:
        for _ in range(updates):
            rows = np.random.randint(len(records.moves), size=256)
            positions, moves = records.positions[rows], torch.from_numpy(records.moves[rows])
            if np.random.random() < 0.5:
                positions, moves = mirrored(positions), GAME.n_moves - 1 - moves
            yield nn.functional.nll_loss(log_p(policy, positions), moves)

    return minimise(policy, losses(), 1e-3)


def improve(policy: nn.Module, iterations: int, games: int = 256, joins_every: int = 10) -> nn.Module:
    """Stage 2, eq. 2: REINFORCE in games against a past self, drawn from a pool that the present one joins."""
    pool = [deepcopy(policy)]

    def losses() -> Iterator[Tensor]:
        for i in range(1, iterations + 1):
            past = pool[np.random.randint(len(pool))]
            own, starts = drawing(policy), openings(games // 2, 4)
            for played, moves_first in (
                (play(own, drawing(past), starts), True),
                (play(drawing(past), own, starts), False),
            ):
                mine = played.first == moves_first  # the moves of the past self teach nothing
                positions, z = played.positions[mine], torch.from_numpy(played.results[mine])
                taken = log_p(policy, positions).gather(1, torch.from_numpy(played.moves[mine])[:, None])[:, 0]
                yield -((z - z.mean()) * taken).mean()
            if i % joins_every == 0:
                pool.append(deepcopy(policy))

    return minimise(policy, losses(), 3e-4)


def outcomes(imitating: nn.Module, improved: nn.Module, games: int) -> tuple[np.ndarray, np.ndarray]:
    """One position of each game [G, 2], and its result for who is to move there [G].

    The imitating policy plays up to a position, a random move follows, and the improved policy plays to the end.
    Games that end before count for nothing, so that they are fewer than asked for.
    """
    positions, until = GAME.start(games), np.random.randint(1, 30, size=games)
    policy = drawing(imitating)
    for made in range(until.max()):
        rows = np.flatnonzero((until > made) & np.isnan(GAME.outcome(positions)))
        if len(rows):
            last = until[rows] == made + 1
            moves = np.where(last, at_random(positions[rows]), policy(positions[rows]))
            positions[rows] = GAME.play(positions[rows], moves)
    positions = positions[np.isnan(GAME.outcome(positions))]
    return positions, play(drawing(improved), drawing(improved), positions).to_first


def values(model: nn.Module, positions: np.ndarray) -> Tensor:
    """v(s) in (-1, 1) to the player to move: [B, 2] -> [B]"""
    return torch.tanh(model(planes(positions))[:, 0])


def regress(model: nn.Module, positions: np.ndarray, results: np.ndarray, updates: int) -> nn.Module:
    """Stage 3, eq. 3: the squared error of v(s) to results; each position is seen as it is or in a mirror."""

    def losses() -> Iterator[Tensor]:
        for _ in range(updates):
            rows = np.random.randint(len(positions), size=256)
            seen = mirrored(positions[rows]) if np.random.random() < 0.5 else positions[rows]
            yield nn.functional.mse_loss(values(model, seen), torch.from_numpy(results[rows]))

    return minimise(model, losses(), 1e-3)


def searching(prior: nn.Module, value: nn.Module, fast: nn.Module, lambda_: float, simulations: int) -> Player:
    """Stage 4: the player who searches with a prior, a value network and rollouts, eq. 5 and 6."""
    rolls = drawing(fast)

    def evaluate(positions: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            v = values(value, positions).numpy()
        if lambda_ > 0:
            v = (1 - lambda_) * v + lambda_ * play(rolls, rolls, positions).to_first
        return probabilities(prior, positions), v

    return MCTS(GAME, evaluate, simulations).choose


# -- the pipeline ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", type=int, default=1_000, help="recorded games")
    parser.add_argument("--updates", type=int, default=2_000, help="gradient steps of imitation and of regression")
    parser.add_argument("--selfplay", type=int, default=200, help="iterations of policy gradients, of 256 games each")
    parser.add_argument("--values", type=int, default=100_000, help="games for the value network")
    parser.add_argument("--simulations", type=int, default=100, help="of every search")
    parser.add_argument("--matches", type=int, default=200, help="games of each match")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    records = record(args.games, args.simulations, args.seed)
    imitating = imitate(network(GAME.n_moves), records, args.updates)
    fast = imitate(linear(GAME.n_moves), records, args.updates)
    print(f"1. the fast policy against random moves: {match(drawing(fast), at_random, args.matches)}")
    print(f"   the imitating policy against the fast one: {match(drawing(imitating), drawing(fast), args.matches)}")

    improved = improve(deepcopy(imitating), args.selfplay)
    points = match(drawing(improved), drawing(imitating), args.matches)
    print(f"2. the improved policy against the imitating one: {points}")

    positions, results = outcomes(imitating, improved, args.values)
    kept = len(positions) * 9 // 10
    value = regress(network(1), positions[:kept], results[:kept], args.updates)
    with torch.no_grad():
        error = np.mean((values(value, positions[kept:]).numpy() - results[kept:]) ** 2)
    print(f"3. squared error of values in new games: {error:.2f}; of their mean: {results[kept:].var():.2f}")

    uct = MCTS(GAME, simulations=args.simulations).choose
    for lambda_, means in ((0.5, "values and rollouts"), (0.0, "values alone"), (1.0, "rollouts alone")):
        player = searching(imitating, value, fast, lambda_, args.simulations)
        print(f"4. the search by {means} against the improved policy: {match(player, drawing(improved), args.matches)}")
        print(f"   against a search without networks: {match(player, uct, args.matches)}")


if __name__ == "__main__":
    main()
