"""Speed of the replay buffers beside Stable-Baselines3's: microseconds per call.

    python benchmarks/replay.py                       # some minutes
    python benchmarks/replay.py --rows 20000 --repeats 1   # does it run?

Every repeat is a fresh process of each library in turn; a process reports the *smallest* time of many short bursts, the
table the median over the repeats. Numba, if it is installed (``polyak[fast]``), is used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from command_line import add_out, add_repeats, add_threads, at_least
from processes import interpreter, run_worker, stop_workers_with_me
from reports import machine, versions_line, write

LIBRARIES = ("polyak", "sb3")
TITLES = {
    "sample": "sample 256 HalfCheetah rows",
    "learn": "256 HalfCheetah rows, as the learner takes them",
    "learn_64": "the same, 64 minibatches in one call, each",
    "learn_late": "256 HalfCheetah rows for a compiled step, which gathers them itself",
    "add_1": "add a step of 1 environment",
    "add_8": "add a step of 8 environments",
    "frames": "sample 32 x 4 x 84 x 84, stored twice",
    "frames_once": "the same, every observation stored once",
    "frames_learn": "as the learner takes them, every frame stored once",
    "prioritized": "prioritised: 256 rows and their new priorities",
}


def run(args: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Library -> one result per repeat, the libraries in turn."""
    job = {"measure": "replay", "rows": args.rows, "pictures": args.pictures, "budget_s": args.seconds}
    runs: dict[str, list[dict[str, Any]]] = {library: [] for library in LIBRARIES}
    for repeat in range(args.repeats):
        for library in LIBRARIES:
            result = run_worker(library, job, args.threads)
            runs[library].append(result)
            figures = ", ".join(f"{key} {value:.1f}" for key, value in result["microseconds"].items())
            print(f"{library:7} {repeat + 1}/{args.repeats}: {figures} | load {os.getloadavg()[0]:.2f}", flush=True)
    return runs


def summarise(runs: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Library -> row of the table -> median over the repeats."""
    return {
        library: {
            key: statistics.median(result["microseconds"][key] for result in results)
            for key in results[0]["microseconds"]
        }
        for library, results in runs.items()
    }


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    where, summary = report["machine"], report["summary"]
    yield "# Replay buffers"
    yield ""
    yield (
        f"Microseconds per call, {where['cpus']} CPU cores ({where['processor']}), {report['threads']} compute "
        f"threads, medians of {report['repeats']} fresh processes, smallest of many bursts each. "
        f"{report['rows']:,} HalfCheetah rows (17 float64 observations, 6 actions), {report['pictures']:,} pictures. "
        f"Load average at the start of the runs: {min(report['loads']):.1f} to {max(report['loads']):.1f}."
    )
    yield ""
    yield "| | polyak | sb3 | sb3 / polyak |"
    yield "|---|---:|---:|---:|"
    for key, title in TITLES.items():
        ours, theirs = summary["polyak"].get(key), summary["sb3"].get(key)
        ratio = f"{theirs / ours:.1f}x" if ours and theirs else "-"
        yield f"| {title} | {_cell(ours)} | {_cell(theirs)} | {ratio} |"
    yield ""
    yield versions_line(report["versions"])


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of polyak's and Stable-Baselines3's replay buffers.")
    add = parser.add_argument
    add("--rows", type=at_least(1000), default=1_000_000, help="transitions in the HalfCheetah buffers")
    add("--pictures", type=at_least(1000), default=30_000, help="transitions in the buffers of pictures")
    add_repeats(parser, 3, "processes per library")
    add("--seconds", type=float, default=2.0, help="time spent on each figure")
    add_threads(parser, 2)
    add_out(parser, "replay")
    args = parser.parse_args()
    stop_workers_with_me()
    for library in LIBRARIES:
        interpreter(library)
    runs = run(args)
    report = {
        "machine": machine(),
        **{name: getattr(args, name) for name in ("rows", "pictures", "repeats", "threads")},
        "summary": summarise(runs),
        "runs": runs,
        "loads": [result["load_before"][0] for results in runs.values() for result in results],
        "versions": {library: results[0]["versions"] for library, results in runs.items()},
    }
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
