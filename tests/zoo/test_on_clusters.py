"""Programs that the documentation shows for clusters, on one that is simulated."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kill_test import differences
from polyak.zoo.run_folder import FULL, RunFolder
from tests.processes import nodes

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
OWN = """
import gymnasium as gym

class Cart(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
"""


def test_the_tuner_of_ray_takes_a_function_that_trains(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```py\n(from ray import tune.*?)```", page, re.DOTALL)
    short = program.replace("2_000", "64").replace("num_samples=8", "num_samples=2").replace("range(5)", "range(2)")
    settings = '"gamma": tune.choice([0.98, 0.99])'
    assert settings in short
    (tmp_path / "program.py").write_text(short.replace(settings, f'{settings}, "n_steps": 64'))
    with nodes(2) as address:
        ran = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env={**os.environ, "RAY_ADDRESS": address, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert re.search(r"^{'learning_rate': .*'gamma': .*} \d", ran.stdout, re.MULTILINE)


def test_a_job_has_its_cluster_and_its_folder_from_ray(tmp_path: Path) -> None:
    """``ray job submit`` sends the command to Ray's dashboard, which need not be installed. There this runs: the
    command in a copy of the folder, and two variables that say where the cluster is and what its nodes have."""
    (tmp_path / "my_env.py").write_text(OWN)
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"-- polyak (train --algo ppo --env my_env.py:MyEnv .*)", page)
    words = words.replace("MyEnv", "Cart").replace("/shared/logs", str(tmp_path / "logs"))
    small = "-n 128 --eval-freq -1 --device cpu -params n_steps:16 batch_size:32 n_epochs:1"
    with nodes(0, 2, 2) as address:
        job = {"runtime_env": {"working_dir": str(tmp_path)}}
        known = {"RAY_ADDRESS": address, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(job), "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, "-m", "polyak", *words.split(), *small.split()],
            cwd=tmp_path,
            env={**os.environ, **known},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
    found = subprocess.run(
        [sys.executable, "-m", "polyak", "status", str(tmp_path / "logs"), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(found.stdout)
    assert told["state"] == "finished"
    assert len({runner["node"] for runner in told["runners"]}) == 2


_KILLED = """
import os, signal, sys
from polyak.zoo.cli import main
from polyak.zoo.run_notes import ProgressFile

def step(self):
    if self.num_timesteps == 420:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

ProgressFile._on_step = step
main(sys.argv[1:])
"""


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_a_driver_that_was_killed_goes_on_from_its_checkpoint(algorithm: str, tmp_path: Path) -> None:
    """With the weights, counters, episodes and random numbers of then: it ends as a run that nobody has killed."""
    own = {
        "dqn": ["learning_starts:32", "batch_size:8", "buffer_size:500", "policy_kwargs:dict(net_arch=[8])"],
        "ppo": ["n_steps:16", "batch_size:32", "n_epochs:2"],
    }[algorithm]
    how = f"train --algo {algorithm} --env CartPole-v1 -n 640 --seed 3 --eval-freq -1 --save-freq 100 --verbose 0"
    runners = "--n-envs 4 --n-runners 2 --device cpu"

    def run(program: list[str], *words: object) -> int:
        known = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, *program, *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, env=known, check=False).returncode

    with nodes(0, 1, 1) as address:
        for program, folder, status in (["-m", "polyak"], "whole", 0), (["-c", _KILLED], "logs", -9):
            words = [*how.split(), *runners.split(), "-f", tmp_path / folder, "-params", *own]
            assert run(program, *words) == status
        path = tmp_path / "logs" / algorithm / "CartPole-v1_1"
        assert list(RunFolder(path, "CartPole-v1").checkpoints(FULL)) == [400]
        assert run(["-m", "polyak"], "train", "--resume", path) == 0
    assert differences(tmp_path / "whole", tmp_path / "logs") == []
