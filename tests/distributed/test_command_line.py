"""``polyak train`` has runners, shards of a replay buffer, and normalisation by what all runners see."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyak import PPO
from tests.zoo.test_cli import run


def train(folder: Path, algo: str, *words: object) -> int:
    line = ["train", "--env", "CartPole-v1", "--algo", algo, "--transport", "local", "--verbose", 0, "--seed", 1]
    return run(*line, "--n-timesteps", 256, "--n-envs", 4, "--log-folder", folder, "--eval-freq", -1, *words)


def test_polyak_train_has_runners(tmp_path: Path) -> None:
    assert train(tmp_path, "ppo", "--n-runners", 2, "-params", "n_steps:32", "batch_size:32") == 0
    folder = next((tmp_path / "ppo").glob("CartPole-v1_*"))
    assert sorted(path.name for path in folder.glob("*.monitor.csv")) == [f"{n}.monitor.csv" for n in range(4)]
    for wrong in ([3], [2, "-params", "runner_timeout:-1"]):
        assert train(tmp_path, "ppo", "--n-runners", *wrong) != 0


def test_polyak_train_has_shards(tmp_path: Path) -> None:
    assert train(tmp_path, "dqn", "--n-runners", 2, "--n-replay-shards", 2, "-params", "learning_starts:64") == 0
    assert train(tmp_path, "dqn", "--n-replay-shards", 5) != 0
    assert train(tmp_path, "ppo", "--n-replay-shards", 2) != 0


def test_polyak_train_normalises_with_runners(tmp_path: Path) -> None:
    settings = ["n_steps:32", "batch_size:32", "normalize:True"]
    assert train(tmp_path, "ppo", "--eval-freq", 128, "--n-runners", 2, "-params", *settings) == 0
    model = PPO.load(next((tmp_path / "ppo").glob("CartPole-v1_*/CartPole-v1.zip")))
    assert model.normalisation.loaded.obs_rms.count == pytest.approx(260, abs=0.01)
