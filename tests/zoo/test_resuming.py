"""Runs that stop early and resume, as if they had not stopped; and faults, run again."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.kill_test import differences
from polyak import writing
from polyak.zoo.resuming import locked
from polyak.zoo.run_folder import FULL, RunFolder
from polyak.zoo.run_notes import ProgressFile
from tests.zoo.faulty import SPEC
from tests.zoo.test_cli import run as polyak

ROOT = Path(__file__).parents[2]
DQN = [
    "-params",
    "n_envs:1",
    "learning_starts:16",
    "batch_size:8",
    "buffer_size:500",
    "policy_kwargs:dict(net_arch=[8])",
]
DQN += ["prioritized:True", "policy_kwargs:dict(net_arch=[8])"]
RUN = "dqn/CartPole-v1_1"


def begin(logs: Path, *more: object) -> int:
    how = ["--algo", "dqn", "--env", "CartPole-v1", "-n", 240, "--seed", 3, "--eval-freq", 40, "--eval-episodes", 1]
    return polyak("train", *how, "--save-freq", 50, "--verbose", 0, "-f", logs, "-tb", logs / "tb", *more, *DQN)


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """The caller of the tests may handle these signals."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a signal come at a step."""

    def step(self: ProgressFile) -> bool:
        if self.num_timesteps == at:
            signal.raise_signal(number)
        return True

    monkeypatch.setattr(ProgressFile, "_on_step", step)


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.usefixtures("usual_signals")
def test_a_run_that_was_asked_to_stop_goes_on_as_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin(tmp_path / "whole") == 0
    resume = ["train", "--resume", tmp_path / "logs" / RUN, "-tb", tmp_path / "logs/tb"]
    run = RunFolder(tmp_path / "logs" / RUN, "CartPole-v1")
    for number, at, status in ((signal.SIGUSR1, 77, 138), (signal.SIGTERM, 133, 143)):
        send(number, at, monkeypatch)
        assert (begin(tmp_path / "logs") if status == 138 else polyak(*resume)) == status
        assert list(run.checkpoints(FULL)) == [at]
        assert run.state.description == f"was interrupted after {at} of 240 steps"
    monkeypatch.undo()
    for left, process in (("dead", 2**22 + 1), ("living", os.getppid())):
        (run.path / f".{left}.zip.{writing._place()}-{process}-00c0ffee.partial").touch()
    assert polyak(*resume, "--seed", 4) == 2
    assert "--seed contradicts --resume: it is 4, and the run was begun with 3" in capsys.readouterr().err
    with locked(run):  # as a program does that lives
        program = [sys.executable, "-m", "polyak", *map(str, resume)]
        refused = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the run is still running" in refused.stderr
    assert polyak(*resume, "--seed", 3) == 0
    (living,) = run.path.glob(".*")
    assert living.name.startswith(".living")
    living.unlink()
    assert differences(tmp_path / "whole", tmp_path / "logs") == []
    assert polyak(*resume) == 2
    assert "the run has finished" in capsys.readouterr().err


def test_a_run_that_was_killed_before_its_first_full_checkpoint_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: ProgressFile) -> bool:  # a copy is what SIGKILL leaves
        if self.num_timesteps == 45:
            shutil.copytree(tmp_path / "whole", tmp_path / "logs")
        return True

    monkeypatch.setattr(ProgressFile, "_on_step", step)
    assert begin(tmp_path / "whole") == 0
    monkeypatch.undo()
    assert len(list((tmp_path / "logs/tb").rglob("events.out*"))) == 1
    arguments = tmp_path / "logs" / RUN / "CartPole-v1/args.yml"
    arguments.write_text(arguments.read_text().replace("whole", "logs"))
    assert polyak("train", "--resume", tmp_path / "logs" / RUN, "-tb", tmp_path / "logs/tb") == 0
    assert differences(tmp_path / "whole", tmp_path / "logs") == []


def test_a_fault_is_run_again_to_the_same_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faulty = ["--env-kwargs", "fault:'NaN'", "after:60"]
    words = ["--algo", "dqn", "--env", SPEC, "-n", 240, "--seed", 3, "--eval-freq", -1, "--save-freq", 25]
    assert polyak("train", *words, "--verbose", 0, "-f", tmp_path, *faulty, *DQN) == 3
    run = RunFolder(tmp_path / "dqn/Faulty-v0_1", "Faulty-v0")
    assert f"polyak replay-fault {run.path}" in capsys.readouterr().err
    fault = run.read_yaml("fault.yml")
    assert (fault["error"], fault["steps"]) == ("NonFiniteError", 59)
    left = sorted(run.path.rglob("*"))
    assert polyak("replay-fault", run.path) == 2, "code that the folder names is not run unasked"
    assert "--trust" in capsys.readouterr().err
    assert polyak("replay-fault", run.path, "--trust") == 0
    assert "The same NonFiniteError after 59 steps, run again from step 50." in capsys.readouterr().out
    (run.settings_folder / "fault.yml").write_text(yaml.safe_dump({**fault, "steps": 58}))
    assert polyak("replay-fault", run.path, "--env", SPEC) == 1
    assert sorted(run.path.rglob("*")) == left


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("address", "ray://evil:10001", "leads out of the folder"),
        ("tensorboard_log", "/elsewhere", "leads out of the folder"),
        ("n_runners", 1000, "n_runners"),
        ("gym_packages", ["my_package"], "--trust"),
        ("n_envs", "many", "n_envs must be a int, got 'many'"),
        ("env", "my_env.py:MyEnv", "--trust"),
        ("algo", "my_algo.py:Mine", "--trust"),
    ],
)
def test_a_folder_of_others_runs_and_sends_nothing(
    name: str, value: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "CartPole-v1_1/CartPole-v1"
    settings.mkdir(parents=True)
    (settings / "args.yml").write_text(yaml.safe_dump({"algo": "dqn", "env": "CartPole-v1", "seed": 1, name: value}))
    (settings / "config.yml").write_text("policy: MlpPolicy\n")
    assert polyak("train", "--resume", settings.parent) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_runs_survive_kills(tmp_path: Path) -> None:
    program = [sys.executable, "benchmarks/kill_test.py", "--kills", "10", "--out", str(tmp_path / "kills")]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
