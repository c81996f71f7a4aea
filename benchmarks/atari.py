"""Rainbow on an Atari game: frames a second, and the memory of a million transitions by arithmetic and as measured.

    python benchmarks/atari.py                                    # some minutes, needs 8 GB of free memory
    python benchmarks/atari.py --rows 20000 --steps 2000          # does it run?

Eight environments that repeat each action four times, four grey frames of 84 x 84 pixels, the paper's network and one
update for four steps. Every frame is kept once. What the process takes with a full memory is the most that it held
besides its transitions, and those: by arithmetic or as the pages of pictures are seen to grow, whichever is more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from atari_calls import FRAMES_PER_STEP
from command_line import add_out, add_threads, at_least
from processes import run_worker, stop_workers_with_me
from reports import machine, versions_line, write

GB = 1e9


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    where, run, threads = report["machine"], report["run"], report["threads"]
    slope, besides = run["bytes_per_row"], ", ".join(f"{size / GB:.2f} GB" for size in run["besides_bytes"])
    returns = f"{statistics.mean(run['returns']):.1f}" if run["returns"] else "none ended"
    yield "# Rainbow on an Atari game"
    yield ""
    yield (
        f"{report['env']}, {report['n_envs']} environments, {run['frames']:,} frames ({FRAMES_PER_STEP} to a step), "
        f"one update for four steps, {threads} compute threads, {where['cpus']} CPU cores ({where['processor']}). "
        f"Mean return of the last training episodes: {returns}."
    )
    yield ""
    yield (
        "| frames a second | updates a second | memory, arithmetic | bytes per transition, measured "
        "| besides, at most, in the first and the second half | full process |"
    )
    yield "|---:|---:|---:|---:|---:|---:|"
    yield (
        f"| {run['frames_per_s']:,.0f} | {run['updates_per_s']:,.1f} | {run['arithmetic_bytes'] / GB:.2f} GB for "
        f"{run['rows']:,} | {slope:,.0f} | {besides} | {run['full_bytes'] / GB:.2f} GB |"
    )
    yield ""
    yield versions_line({"polyak": run["versions"]})


def main() -> int:
    parser = argparse.ArgumentParser(description="Rainbow on an Atari game: speed and memory.")
    add = parser.add_argument
    add("--env", default="ALE/Pong-v5", help="a game that plays every frame when made with frameskip=1")
    add("--n-envs", type=at_least(1), default=8, help="games side by side")
    add("--steps", type=at_least(1000), default=25_000, help="steps of training, each four frames")
    add("--rows", type=at_least(10_000), default=1_000_000, help="transitions that the memory holds")
    add("--seed", type=int, default=0, help="of the games and the network")
    add_threads(parser, 1)
    add_out(parser, "atari")
    args = parser.parse_args()
    stop_workers_with_me()
    asked = {name: getattr(args, name) for name in ("env", "n_envs", "steps", "rows", "seed")}
    run = run_worker("polyak", {"measure": "atari", **asked}, args.threads)
    report = {"machine": machine(), "threads": args.threads, **asked, "run": run}
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
