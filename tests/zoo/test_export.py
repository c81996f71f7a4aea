"""``polyak export``: a run or a model file as one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyak import load
from polyak.zoo.errors import ZooError
from polyak.zoo.export import ExportOptions, export
from tests.exported import assert_same_actions, exported_policy


def test_a_run_and_its_model_file_give_the_same_policy(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_run, of_file = tmp_path / "run.onnx", tmp_path / "file.onnx"
    described = export(ExportOptions(folder=str(trained), output=str(of_run)))
    said = capsys.readouterr().out
    assert f"Wrote {of_run}" in said
    assert "input  observation: float32 ['batch', 4]" in said
    assert "output action: int64 ['batch']" in said
    saved = trained / "ppo" / "CartPole-v1_1" / "CartPole-v1.zip"
    assert export(ExportOptions(model=str(saved), output=str(of_file))) == described
    seen = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    theirs, _ = load(saved, device="cpu").predict(seen, deterministic=True)
    for path in (of_run, of_file):
        assert_same_actions(load(saved).action_space, exported_policy(path)(seen), theirs, np.zeros(20, bool))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"env": "Acrobot-v1"}, "No run at all of ppo on Acrobot-v1"),
        ({"output": "policy.zip"}, r"policy\.zip' must end with \.onnx .* or \.pt2"),
        ({"model": "nothing.zip"}, "Cannot load nothing.zip"),
        ({"channels_last": True}, "Cannot export .*has no images"),
    ],
)
def test_refusals(options: dict, reason: str, trained: Path, tmp_path: Path) -> None:
    given = {"folder": str(trained), "output": str(tmp_path / "policy.onnx"), **options}
    with pytest.raises(ZooError, match=reason):
        export(ExportOptions(**given))
    assert not any(tmp_path.iterdir())
