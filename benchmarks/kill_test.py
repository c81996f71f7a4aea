"""Does a run survive? Kills ``polyak train`` (kill -9) at random moments, and resumes it with ``--resume``.

    python benchmarks/kill_test.py --kills 20
    python benchmarks/kill_test.py --kills 100 --cases ppo sac

Each run is killed up to three times, the last program may end, and all that is in its folder is compared with a run
that was not disturbed: weights, optimizers, random states, replay buffers, evaluations, the best model, checkpoints,
the rows of every log, and the names of the files. Only clock times may differ. The exit status says whether all runs
were equal. A kill that comes before a run has noted its settings is followed by the same command again. Nor may a
program leave processes or temporary files behind. The table is written to ``--out``.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

COMMON = ["--seed", "5", "--verbose", "0", "--num-threads", "1", "--device", "cpu", "--eval-episodes", "2"]
SMALL = "policy_kwargs:dict(net_arch=[16])"
OFF = ["learning_starts:100", "batch_size:16", "buffer_size:5000", SMALL]
CASES: dict[str, list[str]] = {
    "ppo": ["--algo", "ppo", "--env", "CartPole-v1", "-n", "3000", "--save-freq", "250", "--eval-freq", "400"]
    + ["-params", "n_envs:2", "n_steps:64", "batch_size:32", "n_epochs:4", SMALL],
    "sac": ["--algo", "sac", "--env", "Pendulum-v1", "-n", "1500", "--save-freq", "200", "--eval-freq", "500"]
    + ["--save-replay-buffer", "-params", "n_envs:1", *OFF],
    "dqn": ["--algo", "dqn", "--env", "CartPole-v1", "-n", "3000", "--save-freq", "300", "--eval-freq", "500"]
    + ["--save-replay-buffer", "-params", "n_envs:1", "prioritized:True", *OFF],
    "recurrent": ["--algo", "recurrent_ppo", "--env", "CartPole-v1", "-n", "1500", "--save-freq", "150"]
    + ["--eval-freq", "400", "-params", "n_envs:2", "n_steps:64", "batch_size:32", "n_epochs:2"]
    + ["normalize:False", "policy_kwargs:dict(net_arch=[8],lstm_hidden_size=8)"],
    "workers": ["--algo", "ppo", "--env", "Pendulum-v1", "-n", "3000", "--save-freq", "250", "--eval-freq", "600"]
    + ["--vec-env", "subproc", "-params", "n_envs:2", "n_steps:64", "batch_size:32", "n_epochs:4"]
    + ["normalize:dict(norm_reward=True)", SMALL],
}
OF_CLOCKS = ("/t", "/seconds", "start_time")
"""How the names of arrays end that hold times."""
OF_CLOCK_GROUPS = ("time/", "cluster/")
"""How names in tables begin that are of times, processes and rates."""
PATIENCE = 10.0
"""Seconds that the workers of a killed program may take to end."""
STEPS = ("time/total_timesteps", "time/iterations")
"""What tables have under ``time/`` that is not of the clock."""


# -- programs ----------------------------------------------------------------------------------------------------------


def begin(words: list[str], said: Path) -> int:
    """Start ``polyak WORDS`` in a process of its own, a fork of this one, which has imported it all.

    The fork ends as programs do, by SystemExit, so that what is to be done at an end is done.
    """
    if process := os.fork():
        return process
    os.setsid()  # its workers can be told by their session
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1), os.dup2(file, 2)
    from polyak.zoo.cli import main

    sys.argv = ["polyak", *words]
    main(words)
    raise SystemExit


def ended(process: int, seconds: float | None, said: Path) -> bool:
    """Wait, and kill the program after so many seconds. Whether it had ended by itself."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                raise SystemExit(f"a program ended with {code}:\n{said.read_text()[-4000:]}")
            return True
        if until is not None and time.monotonic() >= until:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return False
        time.sleep(0.002)


def left_behind(sessions: set[int], scratch: Path) -> list[str]:
    """Processes of ended programs that do not end soon, and temporary files."""
    until = time.monotonic() + PATIENCE
    while True:
        processes = []
        for process in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            with suppress(ProcessLookupError):
                processes += [process] if os.getsid(process) in sessions else []
        if not processes or time.monotonic() > until:
            return [f"process {one} is left" for one in processes] + [f"{one} is left" for one in scratch.iterdir()]
        time.sleep(0.1)


def run_of(logs: Path) -> Path | None:
    """The folder of the run, once it has noted its settings."""
    found = list(logs.glob("*/*/*/args.yml"))
    return found[0].parents[1] if found else None


def has_finished(folder: Path) -> bool:
    """Whether a run needs no ``--resume``."""
    from polyak.zoo.run_folder import FINISHED, FULL, RunFolder

    run = RunFolder.at(folder)
    return run.state == FINISHED and not run.checkpoints(FULL)


def disturbed(words: list[str], logs: Path, seconds: float, most: int, chance: random.Random) -> tuple[int, set[int]]:
    """A run that is killed up to so many times, and then ends. How often it was, and its programs."""
    kills, said, programs = 0, logs.with_suffix(".txt"), set()
    while True:
        folder = run_of(logs)
        if folder is not None and has_finished(folder):  # the program was killed at its very end
            return kills, programs
        if folder is None:
            shutil.rmtree(logs, ignore_errors=True)
        command = ["train", *words] if folder is None else ["train", "--resume", str(folder), *words[2:4]]
        moment = chance.uniform(0, seconds) if kills < most else None
        programs.add(program := begin(command, said))
        if ended(program, moment, said):
            return kills, programs
        kills += 1


# -- comparison --------------------------------------------------------------------------------------------------------


def arrays_of(path: Path) -> dict[str, Any]:
    """All that a file of polyak's holds, but for clock times."""
    from polyak.checkpoint.saved import read

    with zipfile.ZipFile(path) as archive:
        if "polyak.json" not in archive.namelist():  # statistics of VecNormalize
            return {name: archive.read(name) for name in archive.namelist()}
    saved = read(path, kind=None)
    info = {name: value for name, value in saved.info.items() if name not in ("system", "beside", "collection")}
    if "ep_info_buffer" in info:
        info["ep_info_buffer"] = [[episode["r"], episode["l"]] for episode in info["ep_info_buffer"]]
    if "collection" in saved.info:
        info["collection"] = {key: saved.info["collection"].get(key) for key in ("steps", "episodes")}
    if "hyperparameters" in info:
        info |= {f"hyperparameters/{name}": value for name, value in info.pop("hyperparameters").items()}
        del info["hyperparameters/tensorboard_log"]  # where it is
    parts = ("networks", "optimizers", "state", "replay")
    arrays = {f"{part}/{name}": value for part in parts for name, value in getattr(saved, part).items()}
    return {**info, **{name: value for name, value in arrays.items() if not name.endswith(OF_CLOCKS)}}


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table, but for clock times."""
    with path.open(newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    return [{k: v for k, v in row.items() if k in STEPS or not _is_timed(k)} for row in csv.DictReader(lines)]


def _is_timed(column: str) -> bool:
    return column == "t" or column.startswith(OF_CLOCK_GROUPS)


def scalars_of(folder: Path) -> list[tuple[str, int, float]]:
    """What TensorBoard's files hold, but for clock times."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    values = []
    for file in sorted(folder.rglob("events.out*")):
        for event in EventFileLoader(str(file)).Load():
            values += [(v.tag, event.step, float(v.tensor.float_val[0])) for v in event.summary.value]
    return sorted(value for value in values if not value[0].startswith(OF_CLOCK_GROUPS))


def contents(logs: Path) -> Iterator[tuple[str, Any]]:
    """All that a run has left, by name."""
    for path in sorted(path for path in logs.rglob("*") if path.is_file()):
        name = str(path.relative_to(logs))
        if "events.out" in name:
            continue
        if path.suffix in (".zip", ".pkl"):
            yield name, arrays_of(path)
        elif path.suffix == ".csv":
            yield name, rows_of(path)
        elif path.suffix == ".npz":
            with np.load(path) as data:
                yield name, {key: data[key] for key in data.files}
        elif path.name == "config.yml":
            yield name, path.read_text()
        else:
            yield name, None
    yield "TensorBoard", scalars_of(logs)


def differences(whole: Path, resumed: Path) -> list[str]:
    """Names of what is not equal in two folders of logs."""
    first, second = dict(contents(whole)), dict(contents(resumed))
    wrong = [f"{name} is in one only" for name in sorted(first.keys() ^ second.keys())]
    for name in first.keys() & second.keys():
        try:
            np.testing.assert_equal(second[name], first[name])
        except AssertionError as error:
            wrong.append(f"{name} differs: {' '.join(str(error).split())[:300]}")
    return wrong


def lines(runs: list[dict[str, Any]], where: dict[str, Any]) -> Iterator[str]:
    """The report, as Markdown."""
    yield "# Runs that are killed and resumed"
    yield ""
    yield (
        "`polyak train` is killed (`kill -9`) at random moments and resumed by `--resume`, up to three times a run. "
        "What it leaves is compared with a run that nobody disturbed: weights, optimizers, random states, replay "
        "buffers, statistics, evaluations, best models, checkpoints, the rows of all logs, names of files. No process "
        "and no temporary file may be left."
    )
    yield ""
    yield "| case | runs | kills | equal runs |"
    yield "|---|---:|---:|---:|"
    for name in [*CASES, "all"]:
        if of_case := [run for run in runs if name in (run["case"], "all")]:
            equal = sum(not run["differences"] for run in of_case)
            yield f"| {name} | {len(of_case)} | {sum(run['kills'] for run in of_case)} | {equal} |"
    yield ""
    if wrong := [f"- {run['case']}: {found}" for run in runs for found in run["differences"]]:
        yield from [*wrong, ""]
    yield f"{where['cpus']} x {where['processor']}; polyak {where['polyak']}, torch {where['torch']}."


def main() -> None:
    from command_line import add_out, at_least
    from reports import machine, write

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=at_least(1), default=10, help="of all cases together")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--each", type=at_least(1), default=3, help="kills of one run at most")
    add_out(parser, "kill_test")
    options = parser.parse_args()
    import polyak.zoo.train  # noqa: F401  # what forks would have to import
    from polyak.algorithms import get

    for name in ("ppo", "sac", "dqn", "recurrent_ppo"):
        get(name)
    where = machine() | {name: importlib.metadata.version(name) for name in ("polyak", "torch")}
    chance = random.Random(options.seed)
    runs: list[dict[str, Any]] = []
    above = Path(tempfile.mkdtemp(prefix="kill-test-"))
    scratch = above / "tmp"
    scratch.mkdir()
    os.environ["TMPDIR"], tempfile.tempdir = str(scratch), None
    known: dict[str, tuple[Path, float]] = {}
    while (kills := sum(run["kills"] for run in runs)) < options.kills:
        case = options.cases[len(runs) % len(options.cases)]
        words = [*COMMON, *CASES[case]]
        if case not in known:
            logs = above / f"{case}-whole"
            begun = time.monotonic()
            assert disturbed(placed(words, logs), logs, 0, 0, chance)[0] == 0
            known[case] = logs, time.monotonic() - begun
        whole, seconds = known[case]
        logs = above / f"{case}-{len(runs)}"
        most = min(options.each, options.kills - kills)
        made, programs = disturbed(placed(words, logs), logs, seconds, most, chance)
        found = differences(whole, logs) + left_behind(programs, scratch)
        runs.append({"case": case, "kills": made, "differences": found})
        print(f"{case}: killed {made} times, {'; '.join(found[:5]) or 'equal'}", flush=True)
        write({"machine": where, "seed": options.seed, "runs": runs}, lines(runs, where), options.out)
        if not found:
            shutil.rmtree(logs)
    wrong = any(run["differences"] for run in runs)
    print(f"{kills} kills in {len(runs)} runs: {'NOT EQUAL, see ' + str(above) if wrong else 'all equal'}")
    if not wrong:
        shutil.rmtree(above)
    raise SystemExit(wrong)


def placed(words: list[str], logs: Path) -> list[str]:
    """The words of a command with its folders."""
    return ["-f", str(logs), "-tb", str(logs / "tb"), *words]


if __name__ == "__main__":
    main()
