"""Speed of offline learning beside d3rlpy's and CORL's: updates a second, the whole loop.

    python benchmarks/offline.py                             # half an hour
    python benchmarks/offline.py --algos BC --updates-scale 0.1 --repeats 1   # does it run?

Observations of 17 and actions of 6 numbers, minibatches of 256, two hidden layers of 256 units, each library's defaults
otherwise. CORL is a folder of programs without a package: ``--corl`` names a checkout of
https://github.com/corl-team/CORL (commit eeeeef2); without it, it is left out. Every run is a fresh process, libraries
in turn; figures are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command_line import add_choice, add_out, add_repeats, at_least, positive
from processes import interpreter, run_worker, stop_workers_with_me
from reports import machine, versions_line, write

UPDATES = {"BC": 4000, "TD3BC": 1500, "IQL": 1500, "CQL": 150}
"""Algorithm -> updates of a run."""
LIBRARIES = ("polyak", "d3rlpy", "corl")


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One result for each algorithm, number of threads, library and repeat."""
    results = []
    libraries = LIBRARIES if args.corl else LIBRARIES[:2]
    for algo in args.algos:
        for threads in args.threads:
            for repeat in range(args.repeats):
                for library in libraries:
                    updates = max(int(UPDATES[algo] * args.updates_scale), 10)
                    job = {"measure": "offline", "algo": algo, "updates": updates, "rows": args.rows}
                    result = run_worker(library, {**job, "corl": str(args.corl)}, threads)
                    results.append({"algo": algo, "library": library, **result})
                    print(
                        f"{algo:6} {library:7} {threads} threads {repeat + 1}/{args.repeats}: "
                        f"{result['updates_per_s']:8.1f} updates/s | load {os.getloadavg()[0]:.2f}",
                        flush=True,
                    )
    return results


def median(results: list[dict[str, Any]], algo: str, library: str, threads: int) -> float | None:
    """Updates a second; None if there was no such run."""
    found = [
        result["updates_per_s"]
        for result in results
        if (result["algo"], result["library"], result["threads"]) == (algo, library, threads)
    ]
    return statistics.median(found) if found else None


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    where, results = report["machine"], report["runs"]
    yield "# Offline learning"
    yield ""
    yield (
        f"Updates a second, whole loop, minibatches of 256, {where['cpus']} CPU cores ({where['processor']}), medians "
        f"of {report['repeats']} fresh processes, {report['rows']:,} random rows."
    )
    yield ""
    yield "| | threads | polyak | d3rlpy | CORL | polyak / better of the others |"
    yield "|---|---:|---:|---:|---:|---:|"
    for algo in report["algos"]:
        for threads in report["threads"]:
            ours, *others = (median(results, algo, library, threads) for library in LIBRARIES)
            best = max((value for value in others if value is not None), default=None)
            ratio = f"{ours / best:.1f}x" if ours and best else "-"
            cells = " | ".join("-" if value is None else f"{value:,.1f}" for value in (ours, *others))
            yield f"| {algo} | {threads} | {cells} | {ratio} |"
    yield ""
    yield versions_line({result["library"]: result["versions"] for result in results})


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of offline learning in polyak, d3rlpy and CORL.")
    add_choice(parser, "--algos", list(UPDATES))
    add = parser.add_argument
    add("--corl", type=Path, help="a checkout of CORL; without one it is left out")
    add("--rows", type=at_least(1000), default=100_000, help="transitions in the dataset")
    add("--threads", type=at_least(1), nargs="+", default=[1, 2], help="compute threads of the runs (default 1 2)")
    add("--updates-scale", type=positive, default=1.0, help="multiplies every run's length")
    add_repeats(parser, 3, "runs per library, algorithm and number of threads")
    add_out(parser, "offline")
    args = parser.parse_args()
    if args.corl and not (args.corl / "algorithms" / "offline").is_dir():
        parser.error(f"--corl: {args.corl} has no folder algorithms/offline: name a checkout of corl-team/CORL")
    if args.corl:
        args.corl = args.corl.resolve()
    stop_workers_with_me()
    for library in LIBRARIES if args.corl else LIBRARIES[:2]:
        interpreter(library)
    runs = run(args)
    report = {
        "machine": machine(),
        **{name: getattr(args, name) for name in ("rows", "repeats", "threads", "algos")},
        "runs": runs,
    }
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
