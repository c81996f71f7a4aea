"""What everyday ways of training cost: each beside the plain way, and beside the same way in Stable-Baselines3.

    python benchmarks/ways.py                                    # PPO and SAC; goes on where it was stopped
    python benchmarks/ways.py --algorithms PPO --ways infos function --compile false
    python benchmarks/ways.py --scale 0.1 --rounds 1 --out /tmp/ways     # does it run?

A fresh process trains two models by turns, one plainly and one in the way, so that a drift of the machine hits both; it
counts its own CPU time, which other programs disturb little. The share is the median over the turns' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from command_line import add_choice, add_out, add_threads, at_least, positive
from processes import attempted, interpreter, stop_workers_with_me
from reports import kept, machine, versions_line, write
from ways_calls import WAYS

ALGORITHMS = ("PPO", "SAC")
PEER = "contrib"
COMPILE: dict[str, Any] = {"false": False, "true": True, "auto": "auto", "replay": "replay"}
OTHERS = {"predict": "200 calls of predict", "evaluate": "two episodes of evaluate_policy", "keep": "save and load"}


def jobs(args: argparse.Namespace) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Key, library and what to measure, ours and theirs in turn."""
    for algorithm in args.algorithms:
        for name in (*args.ways, "others"):
            if name != "others" and algorithm not in WAYS[name].algorithms:
                continue
            measure = "ways_others" if name == "others" else "ways"
            job = {"measure": measure, "algorithm": algorithm, "way": name, "rounds": args.rounds, "scale": args.scale}
            for compile_ in args.compile:
                yield f"{algorithm}/{name}/{compile_}", "polyak", {**job, "compile": COMPILE[compile_]}
            yield f"{algorithm}/{name}/{PEER}", PEER, {**job, "compile": None}


def share(result: dict[str, Any]) -> float:
    """Speed in the way over speed in the plain way."""
    speeds = result["speeds"]
    return statistics.median(way / plain for way, plain in zip(speeds["way"], speeds["plain"], strict=True))


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    runs, kinds = report["runs"], report["compile"]
    yield "# Ways of training"
    yield ""
    yield (
        "The share of the plain way's speed (steps per CPU second) that each way keeps, and the speed beside "
        "Stable-Baselines3's in the same way. "
        f"{report['machine']['processor']}, {report['threads']} thread each; medians of {report['rounds']} "
        f"turns, each of {report['scale']:g} of the length in ways_calls.py."
    )
    for algorithm in report["algorithms"]:
        yield ""
        titles = [f"compile={kind}: share | beside SB3" for kind in kinds]
        yield f"| {algorithm} | {' | '.join(titles)} | SB3: share | slower, because of |"
        yield "|---|" + "---:|" * (2 * len(kinds) + 1) + "---|"
        for name, way in WAYS.items():
            theirs = runs.get(f"{algorithm}/{name}/{PEER}")
            if theirs is None:
                continue
            cells = []
            for kind in kinds:
                ours = runs.get(f"{algorithm}/{name}/{kind}")
                cells += ["-", "-"] if ours is None else _cells(ours, theirs)
            yield f"| {way.title} | {' | '.join(cells)} | {_number(share, theirs)} | {way.more_work} |"
        yield ""
        yield f"| {algorithm}, seconds | {' | '.join(f'compile={kind}' for kind in kinds)} | SB3 |"
        yield "|---|" + "---:|" * (len(kinds) + 1)
        for key, title in OTHERS.items():
            found = [runs.get(f"{algorithm}/others/{kind}") for kind in (*kinds, PEER)]
            cells = [f"{run['seconds'][key]:.4f}" if run and "seconds" in run else "-" for run in found]
            yield f"| {title} | {' | '.join(cells)} |"
    yield ""
    yield versions_line(report["versions"])


def _cells(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    if "speeds" not in ours:
        return ["failed", "-"]
    speed = statistics.median(ours["speeds"]["way"])
    beside = f"{speed / statistics.median(theirs['speeds']['way']):.1f}x" if "speeds" in theirs else "-"
    return [_number(share, ours), beside]


def _number(of: Any, result: dict[str, Any]) -> str:
    return f"{of(result):.2f}" if "speeds" in result else "failed"


def main() -> int:
    parser = argparse.ArgumentParser(description="What everyday ways of training cost.")
    add_choice(parser, "--algorithms", ALGORITHMS)
    add_choice(parser, "--ways", list(WAYS))
    add_choice(parser, "--compile", list(COMPILE), ["false", "true"])
    parser.add_argument("--rounds", type=at_least(1), default=5, help="turns of each process (default 5)")
    parser.add_argument("--scale", type=positive, default=1.0, help="length of a turn (default 1)")
    add_threads(parser, 1)
    add_out(parser, "ways")
    args = parser.parse_args()
    stop_workers_with_me()
    for library in ("polyak", PEER):
        interpreter(library)
    runs: dict[str, Any] = kept(args.out).get("runs", {})
    report: dict[str, Any] = {
        "machine": machine(),
        **{name: getattr(args, name) for name in ("algorithms", "compile", "rounds", "scale", "threads")},
        "runs": runs,
        "versions": {},
    }
    for key, library, job in jobs(args):
        if key in runs and "failed" not in runs[key]:
            continue
        runs[key] = attempted(library, job, args.threads)
        shown = runs[key].get("seconds") or (
            f"{share(runs[key]):.2f}" if "speeds" in runs[key] else runs[key]["failed"]
        )
        print(f"{key}: {shown}", flush=True)
        report["versions"] = {
            lib: run["versions"]
            for lib in ("polyak", PEER)
            for name, run in runs.items()
            if "versions" in run and name.endswith(PEER) == (lib == PEER)
        }
        write(report, markdown(report), args.out)
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
