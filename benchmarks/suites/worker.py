"""One run in a process of its own: train, measure, and put the run folder in its place.

Started by `benchmarks.suites.jobs`, which holds the other end of standard input: when that closes, because the
parent has gone, the run ends too.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.suites.results import Result, machine, versions
from benchmarks.suites.suites import Row, as_stored, settings_of
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.interruption import wait_for_the_parents_end
from polyak.zoo.registry import is_atari_id
from polyak.zoo.run_folder import RunFolder, file_name, run_numbers
from polyak.zoo.train import EVAL_SEED_OFFSET, TrainOptions, train


@dataclass(frozen=True)
class Job:
    """What to train and how to measure it; ``logs`` is where the run goes, ``workplace`` where it grows."""

    algo: str
    env: str
    n_timesteps: int
    seed: int
    eval_episodes: int
    logs: str
    workplace: str = ""
    device: str = "auto"
    num_threads: int = 1

    @property
    def row(self) -> Row:
        """The line of the table that it counts for."""
        return Row(self.algo, self.env, self.n_timesteps)

    def __str__(self) -> str:
        return f"{self.algo} on {self.env}, {self.n_timesteps:,} steps, seed {self.seed}"


def work(job: Job) -> Path:
    """Do `job` and return the finished run's folder."""
    settings = as_stored(settings_of(job.algo, job.env).raw)
    started, cpu_started = time.perf_counter(), time.process_time()
    model = train(
        TrainOptions(
            algo=job.algo,
            env=job.env,
            n_timesteps=job.n_timesteps,
            seed=job.seed,
            eval_freq=-1,
            log_folder=job.workplace,
            device=job.device,
            num_threads=job.num_threads,
        )
    )
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    episodes = enjoy(
        EnjoyOptions(
            algo=job.algo,
            env=job.env,
            folder=job.workplace,
            n_timesteps=sys.maxsize,
            n_episodes=job.eval_episodes,
            seed=job.seed + 2 * EVAL_SEED_OFFSET,  # neither training nor its evaluations begin there
            render=False,
            device=job.device,
            num_threads=job.num_threads,
        )
    )
    run = RunFolder.find(Path(job.workplace), job.algo, job.env)
    Result(
        algo=job.algo,
        env=job.env,
        n_timesteps=job.n_timesteps,
        seed=job.seed,
        settings=settings,
        returns=episodes.returns,
        lengths=episodes.lengths,
        deterministic=not is_atari_id(job.env),
        train_seconds=seconds,
        cpu_seconds=cpu_seconds,
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device=str(model.device),
        threads=job.num_threads,
        machine=machine(),
        versions=versions(),
    ).write(run.path)
    return move(run.path, Path(job.logs) / job.algo, job.env)


def move(run: Path, parent: Path, env: str) -> Path:
    """Move a run folder into `parent` under the next free number, and return where it is."""
    parent.mkdir(parents=True, exist_ok=True)
    number = max(run_numbers(parent, env), default=0) + 1
    while True:
        target = parent / f"{file_name(env)}_{number}"
        try:
            os.rename(run, target)
        except OSError:  # another run took the number between the look and the rename
            if not target.exists():
                raise
            number += 1
        else:
            return target


def end_with_parent() -> None:
    """End this process when its standard input closes: half a run counts for no table."""
    wait_for_the_parents_end()
    os._exit(1)


def as_argument(job: Job) -> str:
    """Return `job` as the one argument of this module's program."""
    return json.dumps(asdict(job))


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    work(Job(**json.loads(sys.argv[1])))
