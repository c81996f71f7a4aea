"""Trains what is missing of a suite, and writes the table.

python -m benchmarks.suites --suite classic --seeds 3 --n-jobs 2      # in the root of the repository
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suites.jobs import alone_in, run_jobs
from benchmarks.suites.page import table, write_page
from benchmarks.suites.results import Result, find_results
from benchmarks.suites.suites import SUITES, Row, rows
from benchmarks.suites.table import current, lines
from benchmarks.suites.worker import Job
from polyak.writing import replacing
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.options import CommandOptions, build_command, list_flags, option, spread_lists
from polyak.zoo.output import note, writable_file, writable_folder
from polyak.zoo.registry import find_env
from polyak.zoo.sizes import MOST_PROCESSES, MOST_SEEDS


@dataclass
class BenchmarkOptions(CommandOptions):
    """Train and measure the agents of a suite that are missing, and write a table beside the published scores."""

    suite: Sequence[str] = option(["classic"], "--suite", help=f"{', '.join(SUITES)}; several are possible.")
    algos: Sequence[str] = option([], "--algos", "-a", help="Only these algorithms, if tuned for the environment.")
    envs: Sequence[str] = option([], "--envs", "-e", help="Only these environments of the suite.")
    seeds: int = option(3, "--seeds", help="Runs of each row: seeds 0, 1, 2, ...", at_least=1, at_most=MOST_SEEDS)
    n_timesteps: int = option(-1, "--n-timesteps", "-n", help="Steps of each run; -1: the suite's.", at_least=1)
    eval_episodes: int = option(20, "--eval-episodes", help="Episodes that measure each agent.", at_least=1)
    n_jobs: int = option(
        1, "--n-jobs", help="Runs at the same time, each in a process of its own.", at_least=1, at_most=MOST_PROCESSES
    )
    num_threads: int = option(
        1, "--num-threads", help="Threads of each run; -1 leaves the choice to polyak.", at_most=MOST_PROCESSES
    )
    device: str = option("auto", "--device", help="auto, cpu, cuda, ...")
    log_folder: str = option("logs/benchmark", "--log-folder", "-f", help="Where the runs are kept.")
    output: str = option("", "--output", "-o", help="Markdown page to write; <log-folder>/results.md if not given.")
    dry_run: bool = option(False, "--dry-run", help="List what would be trained, and do nothing.")
    table_only: bool = option(False, "--table-only", help="Train nothing; write the page of the runs that are there.")


def benchmark(options: BenchmarkOptions) -> Path | None:
    """Train, measure and write what `options` ask for; return the page.

    Raises ZooError for a wrong option before anything is trained. Exits with status 1, after the page has been written,
    if a run failed.
    """
    logs = writable_folder("--log-folder", options.log_folder)
    page = writable_file("--output", options.output) if options.output else logs / "results.md"
    failed = 0
    if not options.table_only:
        jobs = _missing(options, logs)
        if options.dry_run:
            print("\n".join([*map(str, jobs), f"{len(jobs)} runs are missing."]))
            return None
        _check_envs({job.env for job in jobs})
        failed = _train(jobs, options, logs)
    _write(page, current(find_results(logs)), logs)
    if failed:
        raise SystemExit(1)
    return page


def _missing(options: BenchmarkOptions, logs: Path) -> list[Job]:
    """Return the jobs without a result, all rows of the first seed first: a table grows from the top to the bottom."""
    wanted = [
        row for suite, envs in _asked(options).items() for row in rows(suite, options.algos, envs, options.n_timesteps)
    ]
    done = {
        (result.row, result.seed)
        for result in current(find_results(logs))
        if len(result.returns) >= options.eval_episodes
    }
    return [_job(row, seed, options) for seed in range(options.seeds) for row in wanted if (row, seed) not in done]


def _asked(options: BenchmarkOptions) -> dict[str, list[str]]:
    """Return the suites, each with those of its environments that are named; none named are all."""
    suites = list(dict.fromkeys(options.suite))
    known = {suite: SUITES.get(suite, {}) for suite in suites}
    nowhere = [env for env in options.envs if not any(env in envs for envs in known.values())]
    asked = {suite: [env for env in options.envs if env in known[suite]] for suite in suites}
    asked[suites[0]] += nowhere  # which is reported there
    return {suite: envs for suite, envs in asked.items() if envs or not options.envs}


def _job(row: Row, seed: int, options: BenchmarkOptions) -> Job:
    return Job(
        algo=row.algo,
        env=row.env,
        n_timesteps=row.n_timesteps,
        seed=seed,
        eval_episodes=options.eval_episodes,
        logs=os.path.abspath(options.log_folder),
        device=options.device,
        num_threads=options.num_threads,
    )


def _check_envs(envs: set[str]) -> None:
    """Make each environment once: a simulator that is missing is reported before the first run, not after the tenth."""
    import gymnasium

    for env in sorted(envs):
        spec = find_env(env).spec
        with usage_errors(f"Cannot make the environment {env}"):
            gymnasium.make(spec).close()


def _train(jobs: list[Job], options: BenchmarkOptions, logs: Path) -> int:
    """Work through `jobs`, saying how each went; return how many failed."""
    print(f"{len(jobs)} runs are missing, {options.n_jobs} at a time.")
    failed = 0
    with alone_in(logs) as place:
        for number, finished in enumerate(run_jobs(jobs, options.n_jobs, place), 1):
            print(f"[{number}/{len(jobs)}] {finished.job}: {finished.seconds:.0f} s", flush=True)
            if finished.error:
                failed += 1
                note(f"{finished.job} failed: {finished.error}")
    return failed


def _write(page: Path, results: list[Result], logs: Path) -> None:
    if not results:
        raise ZooError(f"There are no finished runs of today's settings under {logs}: train some first.")
    with replacing(page) as file:
        file.write(write_page(results).encode())
    for suite, found in lines(results).items():
        print(f"\n{suite}\n{table(found)}")
    print(f"\nWrote {page}")


def main() -> None:
    """Run the command line."""
    import typer

    app = typer.Typer(add_completion=False)
    app.command()(build_command(BenchmarkOptions, benchmark))
    try:
        app(args=spread_lists(sys.argv[1:], list_flags(BenchmarkOptions)))
    except (ZooError, ImportError) as error:
        raise SystemExit(f"benchmark: {error}") from None


if __name__ == "__main__":
    main()
