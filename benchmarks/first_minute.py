"""Whole programs, from the start of the process to the end of a short training, beside Stable-Baselines3.

    python benchmarks/first_minute.py                                  # every row; goes on where it was stopped
    python benchmarks/first_minute.py --rows ppo-1 sac --repeats 3
    python benchmarks/first_minute.py --steps-scale 0.05 --repeats 1 --out /tmp/first    # does it run?

Each run is a fresh process with an empty cache of programs, on one thread; libraries take turns, so that a drift of the
machine hits all alike. Seconds of the clock and of the processor are medians; other programs disturb the latter little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from command_line import add_choice, add_out, add_repeats, add_threads, positive
from processes import attempted, interpreter, stop_workers_with_me
from reports import kept, machine, versions_line, write
from tasks import SpeedTask


class Row(NamedTuple):
    """A program, and the most that it may take beside the peer's."""

    title: str
    task: SpeedTask
    most: float


ROWS = {
    "ppo-1": Row("PPO, CartPole, 50k steps", SpeedTask("PPO", "CartPole-v1", 50_000), 0.20),
    "ppo-8": Row("PPO, CartPole x 8, 50k", SpeedTask("PPO", "CartPole-v1", 50_000, n_envs=8), 0.22),
    "dqn": Row("DQN, CartPole, 50k", SpeedTask("DQN", "CartPole-v1", 50_000), 0.25),
    "a2c-8": Row("A2C, CartPole x 8, 100k", SpeedTask("A2C", "CartPole-v1", 100_000, n_envs=8), 0.45),
    "ppo-halfcheetah": Row("PPO, HalfCheetah, 20k", SpeedTask("PPO", "HalfCheetah-v5", 20_000), 0.35),
    "sac": Row("SAC, HalfCheetah, 5k", SpeedTask("SAC", "HalfCheetah-v5", 5_000), 0.50),
    "td3": Row("TD3, HalfCheetah, 5k", SpeedTask("TD3", "HalfCheetah-v5", 5_000), 0.65),
}
PEER = "contrib"
"""Its virtual environment has Stable-Baselines3 and what contributes to it."""
COMPILE: dict[str, Any] = {"auto": "auto", "replay": "replay", "false": False, "true": True}


def jobs(args: argparse.Namespace) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Key, library and what to run, the libraries in turn."""
    for repeat in range(args.repeats):
        for name in args.rows:
            job = {"measure": "whole", "task": asdict(ROWS[name].task), "seed": repeat}
            job["steps"] = max(1, int(ROWS[name].task.steps * args.steps_scale))
            yield f"{name}/{PEER}/{repeat}", PEER, {**job, "settings": {}}
            for kind in args.compile:
                yield f"{name}/{kind}/{repeat}", "polyak", {**job, "settings": {"compile": COMPILE[kind]}}


def median(runs: dict[str, Any], name: str, kind: str, what: str) -> float | None:
    """The median of a row's runs; None if there are none."""
    found = [run[what] for key, run in runs.items() if key.startswith(f"{name}/{kind}/") and what in run]
    return statistics.median(found) if found else None


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    runs, kinds = report["runs"], report["compile"]
    yield "# The first minute"
    yield ""
    yield (
        "Seconds of whole programs, from the start of a fresh process to the end, with an empty cache: of the clock, "
        f"and of the processor in brackets. {report['machine']['processor']}, {report['threads']} thread each; medians "
        f"of {report['repeats']} runs, libraries in turn; {report['steps_scale']:g} of the steps named."
    )
    yield ""
    titles = [f"compile={kind} | beside it" for kind in kinds]
    yield f"| program | Stable-Baselines3 | {' | '.join(titles)} | at most |"
    yield "|---|---:|" + "---:|" * (2 * len(kinds) + 1)
    for name, row in ROWS.items():
        if (theirs := _both(runs, name, PEER)) is None:
            continue
        cells = [_seconds(theirs)]
        for kind in kinds:
            ours = _both(runs, name, kind)
            ratios = "-" if ours is None else f"{ours[0] / theirs[0]:.2f} ({ours[1] / theirs[1]:.2f})"
            cells += [_seconds(ours), ratios]
        yield f"| {row.title} | {' | '.join(cells)} | {row.most:.2f} |"
    yield ""
    yield versions_line(report["versions"])


def _both(runs: dict[str, Any], name: str, kind: str) -> tuple[float, float] | None:
    wall, cpu = (median(runs, name, kind, what) for what in ("wall_s", "cpu_s"))
    return None if wall is None or cpu is None else (wall, cpu)


def _seconds(both: tuple[float, float] | None) -> str:
    return "-" if both is None else f"{both[0]:.1f} ({both[1]:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description="Whole short programs beside Stable-Baselines3.")
    add_choice(parser, "--rows", list(ROWS))
    add_choice(parser, "--compile", list(COMPILE), ["auto"])
    add_repeats(parser, 3, "runs of each library")
    parser.add_argument("--steps-scale", type=positive, default=1.0, help="length of the trainings (default 1)")
    add_threads(parser, 1)
    add_out(parser, "first_minute")
    args = parser.parse_args()
    stop_workers_with_me()
    for library in ("polyak", PEER):
        interpreter(library)
    runs: dict[str, Any] = kept(args.out).get("runs", {})
    report: dict[str, Any] = {
        "machine": machine(),
        **{name: getattr(args, name) for name in ("compile", "repeats", "threads", "steps_scale")},
        "runs": runs,
        "versions": {},
    }
    for key, library, job in jobs(args):
        if key not in runs or "failed" in runs[key]:
            run = runs[key] = attempted(library, job, args.threads)
            shown = f"{run['wall_s']:.1f} s, {run['cpu_s']:.1f} s of CPU" if "wall_s" in run else run["failed"]
            print(f"{key}: {shown} {run.get('gradient steps', '')}", flush=True)
        if "versions" in runs[key]:
            report["versions"][library] = runs[key]["versions"]
        write(report, markdown(report), args.out)
    print("\n".join(markdown(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
