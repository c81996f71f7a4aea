"""``polyak train --seeds``: one process and one folder each, and none of them stops the others."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from polyak import PPO
from polyak.zoo.enjoy import EnjoyOptions
from polyak.zoo.errors import ZooError
from polyak.zoo.options import to_arguments
from polyak.zoo.run_folder import RunFolder, run_numbers
from polyak.zoo.seeds import number_of_processes, parse_seeds
from polyak.zoo.train import TrainOptions
from tests.processes import runs
from tests.zoo.test_cli import run

SMALL = ["-params", "n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2"]


def test_words() -> None:
    assert parse_seeds(["0..3", "7"]) == [0, 1, 2, 3, 7]
    assert parse_seeds(["5..5"]) == [5]
    for word in ("3..1", "-1", "a", "1..", "1-3"):
        with pytest.raises(ZooError, match=f"--seeds '{word}' is neither a seed nor a range"):
            parse_seeds([word])
    with pytest.raises(ZooError, match=r"--seeds: \[2\] come twice"):
        parse_seeds(["0..2", "2"])
    assert number_of_processes(3, 10) == 3
    assert number_of_processes(30, 2) == 2
    assert 1 <= number_of_processes(-1, 1000) == min(1000, os.cpu_count() or 1)


def test_options_as_words() -> None:
    options = TrainOptions(
        env="-x", n_timesteps=5, hyperparams=["a:1", "b:-2"], truncate_last_trajectory=False, track=True
    )
    assert to_arguments(options) == [
        "--env=-x",
        "--n-timesteps=5",
        "--hyperparams=a:1",
        "--hyperparams=b:-2",
        "--keep-last-trajectory",
        "--track",
    ]
    assert to_arguments(TrainOptions()) == []
    assert to_arguments(EnjoyOptions(load_best=True)) == ["--load-best"]


def polyak(*words: object) -> list[str]:
    return [sys.executable, "-m", "polyak", *map(str, words)]


@pytest.mark.slow
def test_a_failing_seed_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text(
        "import gymnasium\n"
        "class Moody(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 1, (1,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    broken = False\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.t, self.broken = 0, self.broken or seed == 10\n"
        "        return self.observation_space.low, {}\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        if self.broken and self.t > 3:\n"
        "            raise RuntimeError('a bad day')\n"
        "        return self.observation_space.low, 0.0, self.t > 8, False, {}\n"
    )
    words = ["train", "--env", "moody.py:Moody", "-n", 64, "--eval-freq", -1, *SMALL, "--seeds", 10, 12]
    words += ["--processes", 2, "--verbose", 0]
    result = subprocess.run(polyak(*words), cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 3, result.stdout + result.stderr
    assert "1 of 2 trainings failed: seeds 10 (exit status 3)" in result.stderr
    assert "[seed 10] " in result.stdout
    assert "a bad day" in result.stdout
    runs = [RunFolder(path, "Moody") for path in run_numbers(tmp_path / "logs" / "ppo", "Moody").values()]
    assert all(run.final_model.is_file() for run in runs)
    failed = [(run.settings_folder / "error.txt").is_file() for run in runs]
    assert {run.read_yaml("args.yml")["seed"]: bad for run, bad in zip(runs, failed, strict=True)} == {
        10: True,
        12: False,
    }
    places = {run.read_yaml("args.yml")["seed"]: run.path.relative_to(tmp_path) for run in runs}
    assert result.stdout.endswith(f"Runs:\n  seed 10: {places[10]} (failed with an error)\n  seed 12: {places[12]}\n")


def test_mistakes_are_reported_once_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, message in (
        (["--seeds", "0", "1", "--algo", "pop"], "Unknown algorithm --algo 'pop'"),
        (["--seeds", "0", "1", "--seed", "3"], "--seed 3 and --seeds exclude each other"),
    ):
        assert run("train", *words) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


def until_two_train(folder: Path) -> None:
    """Wait until two trainings have ended episodes."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        files = list(folder.rglob("0.monitor.csv"))
        if len(files) == 2 and all(file.stat().st_size > 200 for file in files):
            return
        time.sleep(0.2)
    pytest.fail("two trainings should have begun by now")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_trainings_end_and_save_when_the_program_is_killed(tmp_path: Path) -> None:
    words = ["train", "-f", tmp_path, "-n", 100_000_000, "--eval-freq", -1, *SMALL, "--seeds", "0", "1"]
    with subprocess.Popen(
        polyak(*words, "--processes", 2), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as program:
        try:
            until_two_train(tmp_path)
            children = children_of(program.pid)
        finally:
            program.kill()
    deadline = time.monotonic() + 240
    while len(list(tmp_path.rglob("CartPole-v1.zip"))) < 2 or any(map(runs, children)):
        assert time.monotonic() < deadline, "the trainings have outlived their parent"
        time.sleep(0.2)
    for model in tmp_path.rglob("CartPole-v1.zip"):
        assert PPO.load(model).num_timesteps > 0
        assert not (model.parent / "CartPole-v1" / "error.txt").exists()
    assert list(tmp_path.rglob(".*")) == []


def children_of(pid: int) -> list[int]:
    """The processes that one has started, as ``ps`` knows them."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [child for child, parent in pairs if parent == pid]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_let_them_save(tmp_path: Path, number: int, status: int) -> None:
    words = ["train", "-f", tmp_path, "-n", 10_000_000, "--eval-freq", -1, *SMALL, "--seeds", "0..3", "--processes", 2]
    reset = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # the caller may ignore it: a shell's `&` does
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(polyak(*words), preexec_fn=reset, **pipes) as program:
        until_two_train(tmp_path)
        program.send_signal(number)
        out, err = program.communicate(timeout=240)
    assert program.returncode == status, out + err
    assert len(list(tmp_path.rglob("CartPole-v1.zip"))) == 2
    assert len(run_numbers(tmp_path / "ppo", "CartPole-v1")) == 2, "no other seed began"
    assert out.count("interrupted after") == 2
