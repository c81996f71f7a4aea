"""Signals that ask a command to stop: before anything has begun, before it learns, and what is left in its files."""

import csv
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyak.zoo.interruption import answered_signals
from polyak.zoo.run_folder import FINISHED, RunFolder
from tests.pairs import one_of_each
from tests.warm import python

AT_IMPORT = """
import os, sys

class Sends:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Sends())
from polyak.zoo.cli import main
main({words!r})
"""
"""A command that gets a signal while it imports a module."""

FAULTY = """
import glob, os
import gymnasium as gym
from tests.warm import python

class Signalled(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, at, number):
        self.at, self.number, self.n_steps = at, number, 0
        self._reach(0)

    def _reach(self, step):
        if step == self.at and (step == 0 or glob.glob("logs/*/*/progress.csv")):  # not while it is checked
            os.kill(os.getpid(), self.number)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.n_steps += 1
        self._reach(self.n_steps)
        return self.observation_space.sample(), 0.0, self.n_steps % 5 == 0, False, {}
"""
"""An environment in which a signal comes at a step; at step 0 while it is made."""

SMALL = ["-params", "n_steps:16", "batch_size:16", "n_epochs:1", "n_envs:1", "normalize:False"]


def polyak(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a program, with its output in files."""
    return python(["-m", "polyak", *words], folder)


def train(at: int, number: int, folder: Path, n: int = 64) -> subprocess.CompletedProcess[str]:
    """Train in an environment in which the signal `number` comes at the step `at`."""
    (folder / "signalled.py").write_text(FAULTY)
    how = ["--env", "signalled.py:Signalled", "--env-kwargs", f"at:{at}", f"number:{number}", "-n", str(n)]
    return polyak(["train", *how, "-f", "logs", "--eval-freq", "-1", *SMALL], folder)


@pytest.mark.parametrize(
    ("module", "number"), [("typer", signal.SIGTERM), ("polyak.zoo.train", signal.SIGINT), ("torch", signal.SIGTERM)]
)
def test_a_signal_while_modules_are_imported_is_one_line(module: str, number: signal.Signals, tmp_path: Path) -> None:
    program = AT_IMPORT.format(module=module, number=int(number), words=["train", "-n", "100"])
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 128 + number
    assert done.stderr.startswith(f"polyak: interrupted by {number.name}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", one_of_each([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIGHUP))
def test_a_signal_before_learning_begins_leaves_nothing_but_a_line(number: signal.Signals, tmp_path: Path) -> None:
    done = train(0, number, tmp_path)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.startswith(f"polyak: interrupted by {number.name}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "logs").exists()


def test_blocks_within_each_other_answer_as_one() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with answered_signals() as outer:
        handler = signal.getsignal(signal.SIGTERM)
        with answered_signals() as inner:
            assert inner is outer
        assert signal.getsignal(signal.SIGTERM) == handler
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("at", one_of_each([5, 20], 20))
def test_a_run_that_is_killed_leaves_what_it_had_printed_and_logged(at: int, tmp_path: Path) -> None:
    done = train(at, signal.SIGKILL, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "Log path: logs/ppo/Signalled_1" in done.stdout
    tables = at // 16
    assert done.stdout.count("total_timesteps") == tables
    with open(tmp_path / "logs/ppo/Signalled_1/progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["time/total_timesteps"] for row in rows] == ["0", *["16"] * tables]


@pytest.mark.slow
def test_an_interrupted_training_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    assert train(-1, 0, tmp_path).returncode == 0
    done = train(40, signal.SIGTERM, tmp_path)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    runs = [RunFolder(tmp_path / f"logs/ppo/Signalled_{number}", "Signalled") for number in (1, 2)]
    assert runs[0].state == FINISHED
    steps, of = runs[1].interruption
    assert 32 <= steps <= 40
    assert of == 64
    assert f"interrupted after {steps} steps" in done.stderr
    assert runs[1].state == ("interrupted", f"was interrupted after {steps} of 64 steps")
    named = ["--env", "signalled.py:Signalled", "-n", "1", "-f", "logs"]
    for more, taken in (([], runs[0]), (["--exp-id", "2"], runs[1])):
        found = polyak(["evaluate", *named, *more], tmp_path)
        assert found.returncode == 0, found.stderr
        assert str(taken.final_model.relative_to(tmp_path)) in found.stdout
        (said,) = (line for line in found.stderr.splitlines() if line.startswith("polyak: run "))
        assert f"interrupted after {steps} of 64 steps" in said
