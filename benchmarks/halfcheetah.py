"""What critics and recipes reach on HalfCheetah-v5, after how many steps and seconds, beside their peers.

    python benchmarks/halfcheetah.py                                    # a day on two cores
    python benchmarks/halfcheetah.py --rows SAC TQC --libs polyak --seeds 0 1
    python benchmarks/halfcheetah.py --report                           # only write the table

Each (row, library, seed) is one training in a process of its own with one compute thread; ``--jobs`` of them run side
by side. Those that are finished are kept in ``results/halfcheetah.json`` with the processor that they ran on: the
program goes on where it was stopped. Evaluation is deterministic, and the clock stands meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import learning_tasks
from command_line import add_choice, add_out, at_least
from processes import RunFailed, run_worker, stop_workers_with_me
from reports import processor, versions_line, write

LIBRARIES = ("polyak", "sb3", "contrib")
FOREVER = 10.0**9
SOON = 300.0
"""Seconds after which those are compared that are made to be fast by the clock."""


@dataclass(frozen=True)
class Row:
    """One way to learn it."""

    task: Any
    libraries: tuple[str, ...] = ("polyak",)
    seconds: float = FOREVER
    """When training ends, even if there are steps left."""


def cheetah(algo: str, steps: int = 100_000, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    """The task of an algorithm."""
    return learning_tasks.Task(algo, "HalfCheetah-v5", steps, settings or {}, **more)


_TD3 = {"learning_starts": 10_000, "batch_size": 256, "learning_rate": 1e-3, "policy_kwargs": {"net_arch": [256, 256]}}
_MANY_UPDATES = {"learning_starts": 5_000, "target_entropy": -3.0}
_SIMBA = {"n_critics": 1, "learning_rate": 1e-3, "policy_kwargs": {"net_arch": {"pi": [64], "qf": [64, 64]}}}
_FAST = {
    "learning_rate": 1e-3,
    "batch_size": 512,
    "gradient_steps": 4,
    "learning_starts": 5_000,
    "v_min": -100.0,
    "v_max": 600.0,
    "policy_kwargs": {"net_arch": {"pi": [256, 128], "qf": [256, 128]}},
}
ROWS = {
    "SAC": Row(cheetah("SAC"), ("polyak", "sb3")),
    "TD3": Row(cheetah("TD3", settings=_TD3, noise=0.1), ("polyak", "sb3")),
    "TQC": Row(cheetah("TQC"), ("polyak", "contrib")),
    "CrossQ": Row(cheetah("CrossQ"), ("polyak", "contrib")),
    "SimBa": Row(cheetah("SimBa", settings=_SIMBA)),
    "SAC, 25k steps": Row(cheetah("SAC", 25_000), ("polyak", "sb3")),
    "CrossQ, 25k steps": Row(cheetah("CrossQ", 25_000), ("polyak", "contrib")),
    "REDQ, 25k steps": Row(cheetah("REDQ", 25_000, _MANY_UPDATES)),
    "DroQ, 25k steps": Row(cheetah("DroQ", 25_000, _MANY_UPDATES)),
    "FastTD3, 300 s": Row(
        cheetah("FastTD3", 10**7, _FAST, n_envs=16, normalize={"norm_obs": True, "norm_reward": False}), seconds=SOON
    ),
}
"""Settings are the library's own where a row gives none; those given are ``polyak.zoo``'s."""


def job_of(row: Row, library: str, seed: int, every: int) -> dict[str, Any]:
    """What the worker is told; JSON's types, for comparison with what was done."""
    task = row.task.as_json()
    if library == "polyak":
        task["settings"] = {**task["settings"], "compile": True}
    job = {"measure": "curve", "task": task, "seed": seed, "every": every, "seconds": row.seconds}
    return json.loads(json.dumps(job))


def after(points: list[list[float]], seconds: float) -> float | None:
    """The last evaluation before so many seconds had passed."""
    before = [score for _, at, score in points if at <= seconds]
    return before[-1] if before else None


def markdown(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The report's lines."""
    yield "# HalfCheetah-v5"
    yield ""
    yield (
        "Deterministic evaluation over 20 episodes at the end, each seed; of 5 episodes for the last evaluation within "
        f"{SOON:.0f} s of training. One compute thread each, two trainings side by side; see "
        "`benchmarks/halfcheetah.py`. Seconds are comparable on the same processor only."
    )
    yield ""
    yield f"| | library | seeds | return, each seed | mean | after {SOON:.0f} s | steps per second | processor |"
    yield "|---|---|---|---|---:|---|---:|---|"
    for name in ROWS:
        for library in LIBRARIES:
            for where in sorted({run["processor"] for run in runs}):
                wanted = name, library, where
                some = [run for run in runs if (run["row"], run["library"], run["processor"]) == wanted]
                if some:
                    yield line(name, library, where, sorted(some, key=lambda run: run["job"]["seed"]))
    yield ""
    yield versions_line({run["library"]: run["result"]["versions"] for run in runs})


def line(name: str, library: str, where: str, runs: list[dict[str, Any]]) -> str:
    """The table's line of some seeds."""
    seeds = ", ".join(str(run["job"]["seed"]) for run in runs)
    scores = [run["result"]["score"] for run in runs]
    soon = [after(run["result"]["points"], SOON) for run in runs]
    speed = statistics.median(run["result"]["env_steps"] / run["result"]["learn_s"] for run in runs)
    cells = (
        ", ".join(f"{score:,.0f}" for score in scores),
        f"{statistics.mean(scores):,.0f}",
        ", ".join("-" if score is None else f"{score:,.0f}" for score in soon),
        f"{speed:,.0f}",
    )
    return f"| {name} | {library} | {seeds} | {' | '.join(cells)} | {where} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Returns on HalfCheetah-v5 by steps and by seconds.")
    add_choice(parser, "--rows", list(ROWS))
    add_choice(parser, "--libs", list(LIBRARIES))
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="one training each")
    add("--jobs", type=at_least(1), default=2, help="trainings side by side, one core each")
    add("--every", type=at_least(1000), default=10_000, help="environment steps between evaluations")
    add("--report", action="store_true", help="train nothing")
    add_out(parser, "halfcheetah")
    args = parser.parse_args()
    stop_workers_with_me()
    notes = args.out.with_suffix(".json")
    runs: list[dict[str, Any]] = json.loads(notes.read_text()) if notes.exists() else []
    done = [(run["library"], run["job"]) for run in runs]
    todo = [
        (name, library, job_of(ROWS[name], library, seed, args.every))
        for seed in args.seeds
        for name in args.rows
        for library in args.libs
        if library in ROWS[name].libraries
    ]
    todo = [] if args.report else [(name, library, job) for name, library, job in todo if (library, job) not in done]
    failed = 0
    pool = ThreadPoolExecutor(args.jobs)
    try:
        futures = {
            pool.submit(run_worker, library, job, 1, timeout_s=6 * 3600.0): (name, library, job)
            for name, library, job in todo
        }
        for future in as_completed(futures):
            name, library, job = futures[future]
            try:
                result = future.result()
            except RunFailed as error:
                print(f"{name}, {library}, seed {job['seed']} FAILED\n{error}", flush=True)
                failed += 1
                continue
            runs.append({"row": name, "library": library, "job": job, "processor": processor(), "result": result})
            write(runs, markdown(runs), args.out)
            reached = f"{result['score']:.0f} after {result['env_steps']} steps, {result['learn_s']:.0f} s"
            print(f"{name}, {library}, seed {job['seed']}: {reached}", flush=True)
    finally:  # when this process is stopped, too
        pool.shutdown(cancel_futures=True)
    print(write(runs, markdown(runs), args.out))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
