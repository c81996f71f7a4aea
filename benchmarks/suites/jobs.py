"""Processes that work through jobs: a few at a time, and none outlives its parent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.suites.worker import Job, as_argument
from polyak.zoo.errors import ZooError

ROOT = Path(__file__).parents[2]
#: Under the log folder: runs that are not finished.
WORKPLACES = ".unfinished"

#: How often it is looked whether a process has ended, in seconds.
_PAUSE = 0.1


@dataclass
class Running:
    """A job at work: its process, and the file that holds what it prints."""

    job: Job
    process: subprocess.Popen[bytes]
    output: Path


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended; ``error`` is the last line that it printed if it failed, otherwise empty."""

    job: Job
    seconds: float
    error: str = ""


@contextmanager
def alone_in(logs: Path) -> Iterator[Path]:
    """Hold the log folder, and clear away what killed runs have left; ZooError if another benchmark holds it."""
    from filelock import FileLock, Timeout  # comes with torch

    place = logs / WORKPLACES
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place / "lock", timeout=0):
            for left in place.glob("run-*"):
                shutil.rmtree(left, ignore_errors=True)
            yield place
    except Timeout:
        raise ZooError(f"Another benchmark is at work in {logs}. Wait for it, or give --log-folder.") from None


def run_jobs(jobs: Sequence[Job], n_jobs: int, place: Path) -> Iterator[FinishedJob]:
    """Run `jobs`, at most `n_jobs` at a time, with workplaces under `place`; yield each as it ends.

    A job that fails does not stop the others. When the iterator is closed, or by Ctrl-C, those at work are ended.
    """
    waiting = deque(jobs)
    running: list[Running] = []
    started: dict[Job, float] = {}
    try:
        while waiting or running:
            while waiting and len(running) < n_jobs:
                job = waiting.popleft()
                started[job] = time.perf_counter()
                running.append(_start(job, place))
            time.sleep(_PAUSE)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                error = _last_line(one.output) if one.process.returncode else ""
                yield FinishedJob(one.job, time.perf_counter() - started[one.job], error)
                if not error:
                    shutil.rmtree(one.output.parent, ignore_errors=True)
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.wait()
            shutil.rmtree(one.output.parent, ignore_errors=True)


def _start(job: Job, place: Path) -> Running:
    folder = Path(tempfile.mkdtemp(dir=place, prefix=f"run-{job.algo}-{job.seed}-"))
    output = folder / "output.txt"
    command = [sys.executable, "-m", "benchmarks.suites.worker", as_argument(replace(job, workplace=str(folder)))]
    # As many threads as one asks for: libraries that are not PyTorch choose when they are imported.
    changed = {"OMP_NUM_THREADS": str(job.num_threads)} if job.num_threads > 0 else {}
    changed["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **changed}
        )
    return Running(job, process, output)


def _last_line(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'it ended without a word'} (all of it: {output})"
