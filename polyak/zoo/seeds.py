"""``polyak train --seeds``: the same training with several seeds, each in a process and a run folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from polyak.zoo.errors import NOTHING_SAVED, SAVED, ZooError
from polyak.zoo.interruption import Terminated, status_of
from polyak.zoo.output import note
from polyak.zoo.run_folder import FINISHED, RunFolder
from polyak.zoo.sizes import MOST_SEEDS


def parse_seeds(words: Sequence[str]) -> list[int]:
    """Read ``["0..3", "7"]`` as [0, 1, 2, 3, 7]; ZooError if a word is no seed, or a seed occurs twice."""
    seeds: list[int] = []
    for word in words:
        match = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", word)
        if not match or (match.group(2) and int(match.group(2)) < int(match.group(1))):
            raise ZooError(f"--seeds {word!r} is neither a seed nor a range. Write --seeds 0..9 or --seeds 0 1 2.")
        first = int(match.group(1))
        seeds += islice(range(first, int(match.group(2) or first) + 1), MOST_SEEDS + 1)
        if len(seeds) > MOST_SEEDS:
            raise ZooError(f"--seeds {word!r:.100}: one command trains with at most {MOST_SEEDS:,} seeds.")
    twice = sorted(seed for seed, times in Counter(seeds).items() if times > 1)
    if twice:
        raise ZooError(f"--seeds: {twice} come twice. Name each seed once.")
    return seeds


def number_of_processes(wanted: int, n_seeds: int) -> int:
    """Return how many trainings run at once: `wanted`, or as many as there are CPUs, and never more than seeds."""
    return max(1, min(n_seeds, wanted if wanted > 0 else os.cpu_count() or 1))


def train_seeds(arguments: Sequence[str], seeds: Sequence[int], processes: int) -> int:
    """Run ``polyak train <arguments> --seed <seed>`` for each seed, `processes` at a time.

    Their output is printed with the seed in front. A training that fails does not stop the others; Ctrl-C, SIGTERM and
    the end of this process let running trainings save their models, and start no more. Returns the exit status: 0 if
    all trainings ended well, 130 after Ctrl-C, 143 after SIGTERM; a line on stderr names the seeds that failed; the
    status is then `SAVED` if each of them has saved its model, else `NOTHING_SAVED`.
    """
    trainings, stopped = _Trainings(arguments, processes), 0
    with ThreadPoolExecutor(processes) as pool:
        results = {seed: pool.submit(trainings.run, seed) for seed in seeds}
        try:
            for result in results.values():
                result.result()
        except KeyboardInterrupt as interrupt:
            stopped = status_of(interrupt)
            trainings.interrupt(interrupt)
    statuses = {seed: result.result() for seed, result in results.items()}
    failed = {seed: status for seed, status in statuses.items() if status not in (0, None)}
    if stopped:
        return stopped
    if failed:
        listed = ", ".join(f"{seed} (exit status {status})" for seed, status in failed.items())
        note(f"{len(failed)} of {len(seeds)} trainings failed: seeds {listed}.")
        return SAVED if set(failed.values()) == {SAVED} else NOTHING_SAVED
    return 0


def where_runs_are(runs: Iterable[RunFolder], seeds: Sequence[int]) -> str:
    """Return a line for each of `seeds` that has one of `runs`, which other commands may have begun as well."""
    found = {run.read_yaml("args.yml").get("seed"): run for run in runs}
    states = {seed: "" if run.state == FINISHED else f" ({run.state.description})" for seed, run in found.items()}
    lines = [f"  seed {seed}: {found[seed].path}{states[seed]}" for seed in seeds if seed in found]
    return "\n".join(["Runs:", *lines]) if lines else "No run was begun."


class _Trainings:
    """The programs that run, so that they can be stopped."""

    def __init__(self, arguments: Sequence[str], processes: int) -> None:
        self._command = [sys.executable, "-u", "-m", "polyak.zoo.seed_worker", "train", *arguments]
        # Together they get the CPUs once, not once each.
        threads = str(max(1, (os.cpu_count() or 1) // processes))
        self._environment = {"OMP_NUM_THREADS": threads, **os.environ}
        self._running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self.is_interrupted = False

    def run(self, seed: int) -> int | None:
        """Train with one seed and return the exit status; None if it was interrupted before it began."""
        with self._lock:
            if self.is_interrupted:
                return None
            # In a session of its own it receives Ctrl-C once, from `interrupt`, and not from the terminal as well.
            program = subprocess.Popen(
                [*self._command, "--seed", str(seed)],
                stdin=subprocess.PIPE,  # nothing is written to it: it closes when this process ends
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=self._environment,
                start_new_session=os.name != "nt",
            )
            self._running.append(program)
        assert program.stdin is not None
        assert program.stdout is not None
        for line in program.stdout:
            print(f"[seed {seed}] {line}", end="", flush=True)
        status = program.wait()
        program.stdout.close()
        program.stdin.close()
        return status

    def interrupt(self, interrupt: KeyboardInterrupt) -> None:
        """Request every running program to stop and save, and start no other."""
        # A program started by a shell's `&` ignores SIGINT, and cannot have received a Ctrl-C.
        number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
        with self._lock:
            self.is_interrupted = True
            for program in self._running:
                if program.poll() is None and os.name != "nt":
                    program.send_signal(number)
