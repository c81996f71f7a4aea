"""Simulations per second of Monte Carlo tree search, beside mctx and OpenSpiel.

    python benchmarks/search.py                      # a minute
    python benchmarks/search.py --seconds 0.1        # does it run?

Rows with a network search many positions at once, with layers of 64 and 64 units on one thread; rows with rollouts play
one game at random from each new position. ``mctx`` searches as many with the same layers, compiled by JAX for the
processor, in a virtual environment that is made at the first use (``--no-mctx`` goes without). ``open_spiel`` searches
one position at a time, which is all that it can; its rows appear where it is installed (``polyak[games]``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from command_line import add_out, positive
from processes import HERE, interpreter
from reports import machine, write

GAMES = {"tictactoe": "tic_tac_toe", "connect4": "connect_four"}
BATCHES = (64, 256, 1024)
SIMULATIONS = 50


def speed(search: Callable[[], int], seconds: float) -> float:
    """Simulations per second of processor time; ``search`` says how many it made."""
    search()
    started, made = time.process_time(), 0
    while time.process_time() - started < seconds:
        made += search()
    return made / (time.process_time() - started)


def ours(game: str, seconds: float) -> Iterator[tuple[str, float]]:
    """Name and speed of each way to search."""
    import torch

    from polyak import MCTS, AlphaZero

    torch.set_num_threads(1)
    sizes = {"net_arch": [64, 64]}
    model = AlphaZero("MlpPolicy", game, n_games=1, policy_kwargs=sizes, device="cpu", seed=0)
    for batch in BATCHES:
        positions = model.env.start(batch)  # type: ignore[union-attr]

        def with_network(positions: Any = positions) -> int:
            model.look_ahead(positions, SIMULATIONS)
            return len(positions) * SIMULATIONS

        yield f"polyak, network, {batch} positions", speed(with_network, seconds)
    search = MCTS(game, simulations=SIMULATIONS, seed=0)
    many = search.game.start(256)

    def with_rollouts() -> int:
        search.search(many)
        return len(many) * SIMULATIONS

    yield "polyak, rollouts, 256 positions", speed(with_rollouts, seconds)


def peers(game: str, seconds: float) -> Iterator[tuple[str, float]]:
    """The same of OpenSpiel, where it is installed."""
    if importlib.util.find_spec("pyspiel") is None:
        return
    import pyspiel
    from open_spiel.python.algorithms import mcts

    rules = pyspiel.load_game(GAMES[game])
    state, count = rules.new_initial_state(), 400
    evaluator = pyspiel.RandomRolloutEvaluator(1, 0)
    fast = pyspiel.MCTSBot(rules, evaluator, 2.0, count, 100, False, 0, False)
    slow = mcts.MCTSBot(rules, 2.0, count, mcts.RandomRolloutEvaluator(1))
    for name, bot in (("C++", fast), ("Python", slow)):

        def one(bot: Any = bot) -> int:
            bot.mcts_search(state)
            return count

        yield f"open_spiel, {name}, rollouts", speed(one, seconds)


def mctx(game: str, seconds: float) -> Iterator[tuple[str, float]]:
    """The same of mctx, with a network and in batches alike."""
    threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    command = [interpreter("mctx"), HERE / "mctx_worker.py", game, SIMULATIONS, seconds, *BATCHES]
    ended = subprocess.run(
        list(map(str, command)), env={**os.environ, "XLA_FLAGS": threads}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"mctx failed:\n{ended.stderr}")
    for batch, rate in json.loads(ended.stdout.splitlines()[-1]).items():
        yield f"mctx, network, {batch} positions", rate


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report, line by line."""
    yield "# Monte Carlo tree search"
    yield ""
    yield (
        f"Simulations per second of processor time on one core of {report['machine']['processor']}; with a network "
        f"{SIMULATIONS} simulations of each position, layers of 64 and 64 units. Load average {report['load']:.1f}."
    )
    yield ""
    yield "| game | search | simulations / s |"
    yield "|---|---|---:|"
    for row in report["rows"]:
        yield f"| {row['game']} | {row['search']} | {row['simulations_per_s']:,} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of Monte Carlo tree search beside mctx and OpenSpiel.")
    parser.add_argument("--seconds", type=positive, default=3.0, help="processor time of each row")
    parser.add_argument("--no-mctx", action="store_true", help="leave mctx out")
    add_out(parser, "search")
    args = parser.parse_args()
    rows = [
        {"game": game, "search": name, "simulations_per_s": round(rate)}
        for game in GAMES
        for make in (ours, *([] if args.no_mctx else [mctx]), peers)
        for name, rate in make(game, args.seconds)
    ]
    report = {"machine": machine(), "load": os.getloadavg()[0], "seconds": args.seconds, "rows": rows}
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
