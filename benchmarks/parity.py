"""Does polyak learn as its peer does? Equal settings, equal evaluation, many seeds; IQM with 95 % intervals.

    python benchmarks/parity.py                                   # everything, here and in Stable-Baselines3
    python benchmarks/parity.py --libs sb3 --tasks ppo-cartpole-30k --seeds 10
    python benchmarks/parity.py --report                          # only read the cache and write the tables

Each (library, task, seed) is trained once, in its own process, and kept as a JSON file under ``--cache``: an
interrupted comparison resumes where it stopped, and a changed setting is trained again. The result does not depend on
the machine's load, so runs may share it (``nice`` and ``--threads 1``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import learning_tasks
from command_line import add_choice, add_out, add_threads
from processes import HERE, RunFailed, run_worker, stop_workers_with_me
from reports import write

TASKS = learning_tasks.PARITY | learning_tasks.LEARNING
LIBRARIES = ("polyak", "sb3")
SEEDS = {"sac-halfcheetah-50k": 3}
"""Seeds of a parity task where 10 would take hours; the learning checks have 3."""
FEWEST_SEEDS = 3
"""With fewer, an interval means nothing and no verdict is given."""
TRAINING_WINDOW = {"CartPole-v1": 20, "Pendulum-v1": 10, "HalfCheetah-v5": 5, "BitFlipping": 100}
"""Over how many of the last training episodes the training return is averaged."""
MEASURES = {"score": "final deterministic evaluation", "training_return": "last training episodes"}


def seeds_of(name: str, asked: int | None) -> int:
    """How many seeds a task gets: what the command line says, else 10 for parity and 3 for learning checks."""
    return asked or SEEDS.get(name, 10 if name in learning_tasks.PARITY else 3)


def job_of(name: str, seed: int) -> dict[str, Any]:
    """What the worker is told, which is also what a cached result is compared with."""
    task = TASKS[name]
    plain = json.loads(json.dumps(task.as_json()))
    return {"measure": "learn", "task": plain, "seed": seed, "training_window": TRAINING_WINDOW[task.env]}


def cached(cache: Path, library: str, name: str, seed: int) -> tuple[Path, dict[str, Any] | None]:
    """The file of one run and its content, or None when it was not run with the present settings."""
    file = cache / name / library / f"{seed}.json"
    if not file.exists():
        return file, None
    entry = json.loads(file.read_text())
    asked, done = job_of(name, seed), entry["job"]
    # Thresholds may move without making a training run stale.
    same = all(asked["task"][key] == done["task"].get(key) for key in asked["task"] if key not in ("at_least", "below"))
    return file, entry if same else None


def train_missing(args: argparse.Namespace) -> bool:
    """Run what the cache lacks, one process at a time, seed by seed so that libraries stay level; True if all ran."""
    todo = [
        (library, name, seed)
        for name in args.tasks
        for seed in range(seeds_of(name, args.seeds))
        for library in args.libs
        if cached(args.cache, library, name, seed)[1] is None
    ]
    failed = 0
    for index, (library, name, seed) in enumerate(todo):
        file, _ = cached(args.cache, library, name, seed)
        began, job = time.time(), job_of(name, seed)
        try:
            result = run_worker(library, job, args.threads)
        except RunFailed as error:
            print(f"[{index + 1}/{len(todo)}] {name} {library} seed {seed} FAILED\n{error}", flush=True)
            failed += 1
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps({"job": job, "library": library, "result": result}, indent=1))
        partial.replace(file)
        print(
            f"[{index + 1}/{len(todo)}] {name} {library} seed {seed}: score {result['score']:.1f}, training "
            f"{result['training_return']:.1f}, {time.time() - began:.0f} s (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )
    return not failed


def summary(scores: list[float]) -> dict[str, Any]:
    """Interquartile mean over seeds [n] with its 95 % interval, whose ends are None where it is unknown."""
    import numpy as np

    from polyak.evaluation import interquartile_interval, interquartile_mean

    interval = interquartile_interval(scores)
    low, high = interval if interval.is_known else (None, None)
    return {"iqm": float(interquartile_mean(np.array(scores))), "low": low, "high": high, "seeds": len(scores)}


def verdict(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> str:
    """In words: whether the intervals overlap, and who is ahead when they do not."""
    if ours is None or theirs is None or min(ours["seeds"], theirs["seeds"]) < FEWEST_SEEDS:
        return "too few seeds"
    if ours["low"] is None or theirs["low"] is None:
        return "equal" if ours["iqm"] == theirs["iqm"] else "interval unknown"
    if ours["low"] > theirs["high"]:
        return "polyak ahead"
    return "equal (intervals overlap)" if ours["high"] >= theirs["low"] else "polyak BEHIND"


def collect(args: argparse.Namespace) -> dict[str, Any]:
    """Everything in the cache as one table: task -> measure -> library -> IQM and interval."""
    table: dict[str, Any] = {}
    for name in args.tasks:
        entries = {
            library: [
                entry["result"]
                for seed in range(seeds_of(name, args.seeds))
                if (entry := cached(args.cache, library, name, seed)[1]) is not None
            ]
            for library in args.libs
        }
        entries = {library: results for library, results in entries.items() if results}
        if not entries:
            continue
        table[name] = {"task": TASKS[name].as_json(), "measures": {}, "per_seed": {}}
        for measure in MEASURES:
            scores = {library: [result[measure] for result in results] for library, results in entries.items()}
            rows = {library: summary(values) for library, values in scores.items()}
            table[name]["measures"][measure] = rows | {"verdict": verdict(rows.get("polyak"), rows.get("sb3"))}
            table[name]["per_seed"][measure] = scores
    return table


def markdown(table: dict[str, Any], libraries: list[str]) -> Iterator[str]:
    """The table's lines."""
    yield "# Same learning as the peer"
    yield ""
    yield (
        "Interquartile mean over seeds, 95 % interval in brackets. Equal settings, "
        "final evaluation over deterministic episodes; see `benchmarks/parity.py`."
    )
    yield ""
    yield "| task | measure | " + " | ".join(libraries) + " | seeds | verdict |"
    yield "|---|---|" + "---|" * (len(libraries) + 2)
    for name, row in table.items():
        for measure, title in MEASURES.items():
            cells = row["measures"][measure]
            shown = [_cell(cells[lib]) if lib in cells else "-" for lib in libraries]
            seeds = "/".join(str(cells[lib]["seeds"]) if lib in cells else "0" for lib in libraries)
            yield f"| {name} | {title} | " + " | ".join(shown) + f" | {seeds} | {cells['verdict']} |"


def _cell(found: dict[str, Any]) -> str:
    ends = "unknown" if found["low"] is None else f"{found['low']:.1f} to {found['high']:.1f}"
    return f"{found['iqm']:.1f} [{ends}]"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learning of polyak and Stable-Baselines3, side by side.")
    add_choice(parser, "--tasks", list(TASKS), default=list(learning_tasks.PARITY))
    add_choice(parser, "--libs", LIBRARIES)
    parser.add_argument("--seeds", type=int, help="seeds per task (default: 10; 3 for the long and the learning tasks)")
    add_threads(parser, 1)
    parser.add_argument("--cache", type=Path, default=HERE / "results" / "cache", help="where finished runs are kept")
    add_out(parser, "parity")
    parser.add_argument("--report", action="store_true", help="train nothing; tabulate what the cache has")
    parser.add_argument("--train-only", action="store_true", help="fill the cache; write no table")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    stop_workers_with_me()
    complete = True if args.report else train_missing(args)
    if args.train_only:
        return 0 if complete else 1
    table = collect(args)
    print(write(table, markdown(table, args.libs), args.out))
    behind = any("BEHIND" in cells["verdict"] for row in table.values() for cells in row["measures"].values())
    return 0 if complete and not behind else 1


if __name__ == "__main__":
    sys.exit(main())
