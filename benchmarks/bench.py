"""Speed of polyak beside Stable-Baselines3 and SBX: the same tasks, the same hyper-parameters, one table.

    python benchmarks/bench.py                                  # everything: about an hour on two cores
    python benchmarks/bench.py --tasks sac-halfcheetah --repeats 5
    python benchmarks/bench.py --steps-scale 0.02 --repeats 1   # does it run?

A call goes on from the tasks that an earlier one with the same settings, machine and version has written to ``--out``.
Every run is a fresh process; each peer has its own virtual environment (made on first use under ``.venvs/``); runs are
interleaved (A B C A B C ...) so that a drift of the machine hits all libraries alike; figures are medians. The CPU
time that *other* processes took during a run is measured and shown: a row marked ``*`` was disturbed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from command_line import add_choice, add_out, add_repeats, add_threads, add_wait, positive
from processes import LIBRARIES, RunFailed, interpreter, run_worker, stop_workers_with_me
from reports import kept, machine, versions_line, write
from tasks import TASKS

NOISY = 0.1
"""Cores that others may use during a run before its row is marked."""


class Metric(NamedTuple):
    """One figure of the table."""

    key: str
    title: str
    digits: int
    higher_is_better: bool


METRICS = (
    Metric("env_steps_per_s", "Environment steps per second, whole `learn`", 0, True),
    Metric("ms_per_gradient_step", "Milliseconds per gradient step", 3, False),
    Metric("start_up_s", "Start-up: seconds from process start to a constructed model", 2, False),
    Metric("first_step_s", "Seconds from process start to the first environment step", 2, False),
    Metric("peak_memory_mib", "Peak memory, MiB", 0, False),
)


def busy_seconds() -> float | None:
    """CPU seconds that the whole machine has been busy since boot; None where the kernel does not say."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds that this process and its finished children have used."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class OtherLoad:
    """Cores used by other processes while the ``with`` block ran: ``.cores``, None if unknown."""

    cores: float | None = None

    def __enter__(self) -> OtherLoad:
        self._start = time.perf_counter(), busy_seconds(), own_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        began, busy, own = self._start
        now = busy_seconds()
        if now is not None and busy is not None:
            self.cores = max(0.0, (now - busy - (own_seconds() - own)) / (time.perf_counter() - began))


def wait_until_quiet(limit_s: float) -> None:
    """Wait, at most ``limit_s`` seconds, until others use less than ``NOISY`` cores for two seconds."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with OtherLoad() as load:
            time.sleep(2.0)
        if load.cores is None or load.cores < NOISY:
            return
        print(f"  waiting: other processes use {load.cores:.2f} cores", flush=True)


def run_task(name: str, args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """All runs of one task, interleaved over the libraries; library -> one result per repeat."""
    task = TASKS[name]
    libraries = [library for library in args.libs if library in task.libraries]
    runs: dict[str, list[dict[str, Any]]] = {library: [] for library in libraries}
    job = {
        "measure": "speed",
        "task": asdict(task),
        "seed": 0,
        "steps": max(1, int(task.steps * args.steps_scale)),
        "gradient_budget_s": args.gradient_seconds,
    }
    for repeat in range(args.repeats):
        for library in libraries:
            wait_until_quiet(args.wait)
            with OtherLoad() as load:
                try:
                    result = run_worker(library, job | {"seed": repeat}, args.threads)
                except RunFailed as error:
                    print(f"{name} {library} repeat {repeat} FAILED: {error}", flush=True)
                    continue
            result["other_cores"] = load.cores
            runs[library].append(result)
            step = f"{result['ms_per_gradient_step']:8.3f}" if "ms_per_gradient_step" in result else "       -"
            print(
                f"{name:16} {library:7} {repeat + 1}/{args.repeats}: {result['env_steps_per_s']:9,.0f} steps/s, "
                f"{step} ms/gradient step, start {result['start_up_s']:5.2f} s, "
                f"{result['peak_memory_mib']:5.0f} MiB | load {os.getloadavg()[0]:.2f}, others "
                f"{'?' if load.cores is None else f'{load.cores:.2f}'} cores",
                flush=True,
            )
    return runs


def summarise(runs: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Medians over repeats: library -> metric -> value where there is one, and the worst disturbance."""
    return {
        library: {
            metric.key: statistics.median(run[metric.key] for run in results)
            for metric in METRICS
            if metric.key in results[0]
        }
        | {"other_cores": max(run["other_cores"] or 0.0 for run in results), "repeats": len(results)}
        for library, results in runs.items()
        if results
    }


def how_many_times_better(metric: Metric, ours: float, theirs: float) -> float:
    """Above 1 when polyak is better, whichever way the metric points."""
    return ours / theirs if metric.higher_is_better else theirs / ours


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines: one table a metric."""
    where, summary, libraries = report["machine"], report["summary"], report["libraries"]
    yield "# Speed"
    yield ""
    yield (
        f"{where['cpus']} CPU cores ({where['processor']}), compute threads: "
        + (str(report["threads"]) if report["threads"] else "each library's own choice")
        + f"; medians of {report['repeats']} interleaved runs, a fresh process each"
        + (f", run lengths scaled by {report['steps_scale']:g}" if report["steps_scale"] != 1 else "")
        + ". Ratios above 1: polyak is better. `*`: other processes used more than "
        f"{NOISY:g} cores during a run."
    )
    peers = [library for library in libraries if library != "polyak"] if "polyak" in libraries else []
    for metric in METRICS:
        yield ""
        yield f"## {metric.title}"
        yield ""
        yield "| task | " + " | ".join([*libraries, *(f"polyak vs {peer}" for peer in peers)]) + " |"
        yield "|---|" + "---:|" * (len(libraries) + len(peers))
        for name, row in summary.items():
            cells = []
            for library in libraries:
                if metric.key not in row.get(library, {}):
                    cells.append("-")
                    continue
                noisy = "*" if row[library]["other_cores"] > NOISY else ""
                cells.append(f"{row[library][metric.key]:,.{metric.digits}f}{noisy}")
            for peer in peers:
                known = all(metric.key in row.get(library, {}) for library in ("polyak", peer))
                cells.append(
                    f"{how_many_times_better(metric, row['polyak'][metric.key], row[peer][metric.key]):.2f}x"
                    if known
                    else "-"
                )
            yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""
    yield versions_line(report["versions"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed of polyak, Stable-Baselines3 and SBX on the same tasks.")
    add_choice(parser, "--tasks", list(TASKS))
    add_choice(parser, "--libs", LIBRARIES)
    add_repeats(parser, 3, "runs per library and task")
    parser.add_argument("--steps-scale", type=positive, default=1.0, help="multiplies every run's length")
    parser.add_argument("--gradient-seconds", type=float, default=2.0, help="time spent on gradient steps per run")
    add_threads(parser, 0)
    add_wait(parser)
    add_out(parser, "bench")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    stop_workers_with_me()
    for library in args.libs:
        interpreter(library)
    settings = {
        "machine": machine(),
        "polyak": importlib.metadata.version("polyak"),
        **{name: getattr(args, name) for name in ("threads", "repeats", "steps_scale")},
        "libraries": args.libs,
    }
    before = kept(args.out)
    same = {name: before.get(name) for name in settings} == settings
    tables: dict[str, Any] = {name: before[name] if same else {} for name in ("summary", "runs", "versions")}
    report = settings | tables
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {args.threads or 'own'} threads a run", flush=True)

    def whole(runs: dict[str, list[Any]] | None) -> bool:
        return runs is not None and all(len(results) == args.repeats for results in runs.values())

    text, complete = "", True
    for name in args.tasks:
        if not whole(report["runs"].get(name)):
            runs = run_task(name, args)
            report["runs"][name] = runs
            report["summary"][name] = summarise(runs)
            report["versions"] |= {library: results[0]["versions"] for library, results in runs.items() if results}
        complete &= whole(report["runs"][name])
        text = write(report, markdown(report), args.out)
    print(text)
    print(f"written: {args.out.with_suffix('.md')} and {args.out.with_suffix('.json')}")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
