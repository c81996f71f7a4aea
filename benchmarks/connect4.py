"""How well AlphaZero plays Connect-4 after some minutes of self-play: blunders on solved positions, points against UCT.

    python benchmarks/connect4.py                                  # ten minutes with two processes that play
    python benchmarks/connect4.py --seconds 5 --games 10           # does it run?
    python benchmarks/connect4.py --workers 0 --processor-time     # of this process: elsewhere others are busy

A blunder is a move that is worth less than the best (won, drawn, lost), on 360 positions which
``tests/envs/games/connect4_positions.py`` describes: after 18 to 27 moves at random, nobody can win at once, and some
moves are worth less than others. A random player, UCT with random games (``solves`` off and on) and the network alone
say how difficult they are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from command_line import add_out, at_least, positive
from reports import machine, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

NETWORK = {"channels": 64, "window": 4}
SETTINGS: dict[str, Any] = {
    "n_games": 128,
    "simulations": 50,
    "batch_size": 512,
    "gradient_steps": 2,
    "buffer_size": 200_000,
    "warm_moves": 20,
    "opening_moves": 20,
}
SEARCHES = (200, 800)
ROLLOUTS = 400


def trained(seconds: float, workers: int, clock: Callable[[], float], seed: int) -> Any:
    """A model after so much time."""
    from polyak import AlphaZero
    from polyak.callbacks.callback import BaseCallback
    from polyak.nn.policies.game import BoardWindows

    class Until(BaseCallback):
        """Stops when the time is over."""

        needs_locals = False

        def _on_step(self) -> bool:
            return clock() < seconds

    network = {"features_extractor_class": BoardWindows, "features_extractor_kwargs": NETWORK, "net_arch": [256]}
    model = AlphaZero(
        "MlpPolicy", "connect4", policy_kwargs=network, n_workers=workers, device="cpu", seed=seed, **SETTINGS
    )
    return model.learn(10**9, callback=Until(), log_interval=None)


def players(model: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Who is asked about the positions."""
    import numpy as np

    from polyak import MCTS

    game = model.env
    legal = game.legal
    rng = np.random.default_rng(0)
    yield "random", lambda positions: np.where(legal(positions), rng.random((len(positions), 7)), -1).argmax(1)
    for solves in (False, True):
        for n in (*SEARCHES[:1], ROLLOUTS, *SEARCHES[1:]):
            search = MCTS(game, simulations=n, solves=solves, seed=0)
            yield f"UCT, {n} games at random{', proving' if solves else ''}", search.choose
    yield "AlphaZero, the network alone", lambda positions: model.predict(game.observe(positions), simulations=0)[0]
    for n in SEARCHES:
        yield f"AlphaZero, {n} simulations", lambda positions, n=n: model.look_ahead(positions, n).moves


def report(args: argparse.Namespace) -> dict[str, Any]:
    """Train, ask, play."""
    import torch

    from polyak import MCTS
    from polyak.algorithms.search.self_play import match
    from tests.envs.games.connect4_positions import error_rate, load

    torch.set_num_threads(1)
    read = time.process_time if args.processor_time else time.perf_counter
    started = read()
    model = trained(args.seconds, args.workers, lambda: read() - started, args.seed)
    if args.save:
        model.save(args.save)
    solved = load()
    blunders = {name: error_rate(solved, choose) for name, choose in players(model)}
    points = {}
    for n in SEARCHES:
        model.search.simulations = n
        uct = MCTS("connect4", simulations=ROLLOUTS, seed=args.seed)
        points[n] = match(model.search, uct, args.games) / args.games
    played = {"positions": model.num_timesteps, "updates": model._n_updates}
    given = {"seconds": args.seconds, "workers": args.workers, "games": args.games, "seed": args.seed}
    unit = "processor time" if args.processor_time else "wall time"
    return {"machine": machine(), **given, "unit": unit, **played, "blunders": blunders, "points": points}


def markdown(found: dict[str, Any]) -> Iterator[str]:
    """The report, line by line."""
    yield "# Connect-4 after some minutes of self-play"
    yield ""
    yield (
        f"{found['seconds']:g} s of {found['unit']} with {found['workers']} processes that play (0: the learner's own) "
        f"on {found['machine']['processor']}: {found['positions']:,} positions, {found['updates']:,} gradient steps."
    )
    yield ""
    yield "| player | blunders on solved positions |"
    yield "|---|---:|"
    for name, rate in found["blunders"].items():
        yield f"| {name} | {100 * rate:.1f} % |"
    yield ""
    yield f"| AlphaZero against UCT with {ROLLOUTS} games at random | points of {found['games']} games, both seats |"
    yield "|---|---:|"
    for n, share in found["points"].items():
        yield f"| {n} simulations | {100 * share:.0f} % |"


def main() -> int:
    parser = argparse.ArgumentParser(description="AlphaZero on Connect-4, judged by solved positions and by UCT.")
    parser.add_argument("--seconds", type=positive, default=600.0, help="of training (default 600)")
    parser.add_argument("--workers", type=at_least(0), default=2, help="processes that play (default 2)")
    parser.add_argument("--games", type=at_least(2), default=100, help="against UCT (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="where to keep the model")
    parser.add_argument("--processor-time", action="store_true", help="count this process's processor time instead")
    add_out(parser, "connect4")
    args = parser.parse_args()
    if args.processor_time and args.workers:
        parser.error("--processor-time counts this process alone: use it with --workers 0.")
    found = report(args)
    print(write(found, markdown(found), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
