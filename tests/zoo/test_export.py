"""``polyak export``: a run or a model file as one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyak import load
from polyak.zoo.errors import ZooError
from polyak.zoo.export import ExportOptions, export
from polyak.zoo.train import TrainOptions, train
from tests.exported import assert_same_actions, exported_policy


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a moment, normalised."""
    folder = tmp_path_factory.mktemp("logs")
    small = ["n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2", "normalize:True"]
    train(
        TrainOptions(
            env="Pendulum-v1",
            n_timesteps=64,
            eval_freq=-1,
            hyperparams=small,
            seed=0,
            log_folder=str(folder),
            verbose=0,
        )
    )
    return folder


def test_a_run_and_its_model_file_give_the_same_policy(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_run, of_file = tmp_path / "run.onnx", tmp_path / "file.onnx"
    described = export(ExportOptions(env="Pendulum-v1", folder=str(logs), output=str(of_run)))
    said = capsys.readouterr().out
    assert f"Wrote {of_run}" in said
    assert "input  observation: float32 ['batch', 3]" in said
    assert "output action: float32 ['batch', 1]" in said
    saved = logs / "ppo" / "Pendulum-v1_1" / "Pendulum-v1.zip"
    assert export(ExportOptions(model=str(saved), output=str(of_file))) == described
    seen = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    theirs, _ = load(saved, device="cpu").predict(seen, deterministic=True)
    for path in (of_run, of_file):
        assert_same_actions(load(saved).action_space, exported_policy(path)(seen), theirs, np.zeros(20, bool))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"env": "Acrobot-v1"}, "No run at all of ppo on Acrobot-v1"),
        ({"output": "policy.zip"}, r"policy\.zip' must end with \.onnx .* or \.pt2"),
        ({"model": "nothing.zip"}, "Cannot load nothing.zip"),
        ({"masks": True}, "Cannot export .*masks=True"),
        ({"channels_last": True}, "Cannot export .*has no images"),
    ],
)
def test_refusals(options: dict, reason: str, logs: Path, tmp_path: Path) -> None:
    given = {"env": "Pendulum-v1", "folder": str(logs), "output": str(tmp_path / "policy.onnx"), **options}
    with pytest.raises(ZooError, match=reason):
        export(ExportOptions(**given))
    assert not any(tmp_path.iterdir())
