"""Speed of vectors of environments alone, without learning: polyak beside SB3, Gymnasium, ALE and EnvPool.

    python benchmarks/vector_envs.py                             # about three minutes
    python benchmarks/vector_envs.py --rows cartpole --repeats 5
    python benchmarks/vector_envs.py --seconds 0.2 --repeats 1 --wait 0   # does it run?

Every run is a fresh process; SB3 and EnvPool have virtual environments of their own, the rest runs in polyak's. Runs
are interleaved (A B C A B C ...), figures are medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench import NOISY, OtherLoad, wait_until_quiet
from command_line import add_choice, add_out, add_repeats, add_wait
from processes import RunFailed, interpreter, run_worker, stop_workers_with_me
from reports import machine, versions_line, write


class Contender(NamedTuple):
    """One way to step the environments."""

    name: str
    interpreter: str
    maker: str
    """A function of ``vector_env_makers``."""


class Row(NamedTuple):
    """One table: the same environments, made by each contender."""

    env: str
    n_envs: int
    contenders: tuple[Contender, ...]
    """Those whose name begins with "polyak" are compared with each of the others."""


DEFAULT = Contender("polyak SubprocVecEnv", "polyak", "polyak_subproc")
IN_CALLER = Contender("polyak SubprocVecEnv(step_in_caller=True)", "polyak", "polyak_subproc_in_caller")
NATIVE = Contender("polyak make_native_vec_env", "polyak", "polyak_native")
SB3 = Contender("SB3 SubprocVecEnv", "sb3", "sb3_subproc")
ENVPOOL = Contender("EnvPool", "envpool", "envpool_vector")

ROWS = {
    "cartpole": Row(
        "CartPole-v1",
        8,
        (
            DEFAULT,
            IN_CALLER,
            Contender("polyak DummyVecEnv", "polyak", "polyak_dummy"),
            NATIVE,
            SB3,
            Contender("Gymnasium CartPoleVectorEnv", "polyak", "gymnasium_vector"),
            ENVPOOL,
        ),
    ),
    "cartpole-64": Row(
        "CartPole-v1", 64, (NATIVE, Contender("Gymnasium CartPoleVectorEnv", "polyak", "gymnasium_vector"), ENVPOOL)
    ),
    "halfcheetah": Row("HalfCheetah-v5", 16, (DEFAULT, IN_CALLER, SB3, ENVPOOL)),
    "breakout": Row(
        "ALE/Breakout-v5",
        8,
        (
            NATIVE,
            Contender("polyak SubprocVecEnv, wrappers", "polyak", "polyak_atari"),
            Contender("SB3 SubprocVecEnv, wrappers", "sb3", "sb3_atari"),
            Contender("ALE AtariVectorEnv", "polyak", "ale_vector"),
            ENVPOOL,
        ),
    ),
}


def run_row(name: str, args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """All runs of one row, interleaved; contender -> one result per repeat."""
    row = ROWS[name]
    runs: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in row.contenders}
    for repeat in range(args.repeats):
        for contender in row.contenders:
            job = {"measure": "vector_env", "env": row.env, "n_envs": row.n_envs, "seconds": args.seconds,
                   "maker": contender.maker}  # fmt: skip
            wait_until_quiet(args.wait)
            with OtherLoad() as load:
                try:
                    result = run_worker(contender.interpreter, job, threads=1)
                except RunFailed as error:
                    print(f"{name} {contender.name} repeat {repeat} FAILED: {error}", flush=True)
                    continue
            result["other_cores"] = load.cores
            runs[contender.name].append(result)
            print(
                f"{name:12} {contender.name:42} {repeat + 1}/{args.repeats}: {result['env_steps_per_s']:11,.0f} "
                f"steps/s | others {'?' if load.cores is None else f'{load.cores:.2f}'} cores",
                flush=True,
            )
    return runs


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines: one table a row of the benchmark, with the ratio of polyak's ways to each other one."""
    where = report["machine"]
    yield "# Vector environments"
    yield ""
    yield (
        f"Environment steps per second with random actions; {where['cpus']} CPU cores ({where['processor']}), "
        f"medians of {report['repeats']} interleaved runs of {report['seconds']:g} s. Above 1: polyak is faster. "
        f"`*`: other processes used more than {NOISY:g} cores during a run."
    )
    for name, runs in report["runs"].items():
        row = ROWS[name]
        medians = {
            who: statistics.median(run["env_steps_per_s"] for run in results)
            for who, results in runs.items()
            if results
        }
        ours = [who for who in medians if who.startswith("polyak")]
        yield ""
        yield f"## {row.env} x {row.n_envs}"
        yield ""
        yield "| | steps/s | " + " | ".join(f"{who} vs it" for who in ours) + " |"
        yield "|---|---:|" + "---:|" * len(ours)
        for who, median in medians.items():
            noisy = "*" if max(run["other_cores"] or 0.0 for run in runs[who]) > NOISY else ""
            ratios = [
                "-" if who.startswith("polyak") else f"{medians[own] / median:.2f}x" for own in ours
            ]  # among themselves they need none
            yield f"| {who} | {median:,.0f}{noisy} | " + " | ".join(ratios) + " |"
    yield ""
    yield versions_line(report["versions"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed of vectors of environments, without learning.")
    add_choice(parser, "--rows", list(ROWS))
    add_repeats(parser, 5, "runs per contender")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run (default 2)")
    add_wait(parser)
    add_out(parser, "vector_envs")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    stop_workers_with_me()
    contenders = [contender for name in args.rows for contender in ROWS[name].contenders]
    for library in sorted({contender.interpreter for contender in contenders}):
        interpreter(library)
    report: dict[str, Any] = {
        "machine": machine(),
        "repeats": args.repeats,
        "seconds": args.seconds,
        "runs": {},
        "versions": {},
    }
    for name in args.rows:
        runs = report["runs"][name] = run_row(name, args)
        for contender in ROWS[name].contenders:
            for run in runs[contender.name][:1]:
                report["versions"][contender.interpreter] = run["versions"]
    print(write(report, markdown(report), args.out))
    complete = all(len(results) == args.repeats for runs in report["runs"].values() for results in runs.values())
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
