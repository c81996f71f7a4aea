"""The layout of logs/."""

from pathlib import Path

import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import plain
from polyak.zoo.run_folder import RunFolder, run_numbers


def test_numbers_go_up_and_environments_do_not_mix(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path, "PPO", "Hopper-v5")
    second = RunFolder.create(tmp_path, "ppo", "Hopper-v5")
    other = RunFolder.create(tmp_path, "ppo", "HopperBullet-v5")
    unique = RunFolder.create(tmp_path, "ppo", "Hopper-v5", unique=True)
    assert [run.path.name for run in (first, second, other)] == ["Hopper-v5_1", "Hopper-v5_2", "HopperBullet-v5_1"]
    assert unique.path.name.startswith("Hopper-v5_3_")
    assert set(run_numbers(tmp_path / "ppo", "Hopper-v5")) == {1, 2, 3}
    assert RunFolder.find(tmp_path, "ppo", "Hopper-v5").path == unique.path
    assert RunFolder.find(tmp_path, "ppo", "Hopper-v5", 1).path == first.path
    assert RunFolder.find(tmp_path, "ppo", "Hopper-v5", -1).path == tmp_path / "ppo"


def test_slashes_do_not_reach_the_file_system(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "ppo", "ALE/Pong-v5")
    assert folder.path == tmp_path / "ppo" / "ALE-Pong-v5_1"
    assert folder.final_model.name == "ALE-Pong-v5.zip"
    assert folder.settings_folder.is_dir()


def test_a_missing_run_says_what_there_is(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "ppo", "Hopper-v5")
    with pytest.raises(ZooError, match=r"No run 7 of ppo on Hopper-v5.*Runs there: 1"):
        RunFolder.find(tmp_path, "ppo", "Hopper-v5", 7)
    with pytest.raises(ZooError, match=rf"Did you mean 'Hopper-v5'\?\nRuns found:\n  {tmp_path}/ppo: Hopper-v5 \(1\)"):
        RunFolder.find(tmp_path, "ppo", "Hoper-v5")
    with pytest.raises(ZooError, match=rf"There are none of sac.\nRuns found:\n  {tmp_path}/ppo: Hopper-v5"):
        RunFolder.find(tmp_path, "sac", "Hopper-v5")
    with pytest.raises(ZooError, match="There are no runs under .*nowhere: train first"):
        RunFolder.find(tmp_path / "nowhere", "ppo", "Hopper-v5")


def test_models(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "sac", "Hopper-v5")
    for name in ("rl_model_500_steps.zip", "rl_model_1000_steps.zip", "best_model.zip"):
        (folder.path / name).touch()
    assert folder.model(best=True).name == "best_model.zip"
    assert folder.model(checkpoint=500).name == "rl_model_500_steps.zip"
    assert folder.model(last_checkpoint=True).name == "rl_model_1000_steps.zip"
    with pytest.raises(ZooError, match="Checkpoints there: 500, 1000"):
        folder.model(checkpoint=3)
    with pytest.raises(ZooError, match=r"Model files in that folder: best_model.zip, rl_model"):
        folder.model()


def test_yaml_is_plain_both_ways(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "sac", "Hopper-v5")
    content = {"a": (1, 2), "b": {"c": Path("x")}, "d": None, "e": RunFolder, "f": 0.5}
    folder.write_yaml("config.yml", content)
    assert "!!" not in (folder.settings_folder / "config.yml").read_text()
    assert folder.read_yaml("config.yml") == plain(content)
    assert folder.read_yaml("missing.yml") == {}
    (folder.settings_folder / "config.yml").write_text("!!python/object/apply:os.mkdir ['/tmp/never']")
    with pytest.raises(ZooError, match="as plain YAML"):
        folder.read_yaml("config.yml")


def test_remove(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "sac", "Hopper-v5")
    folder.remove()
    assert not folder.path.exists()


def test_each_model_has_its_own_replay_buffer(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "X_5_steps")
    folder.replay_buffer.touch()
    names = ("rl_model_10_steps", "mine_10_steps", "best_model", "X_5_steps", "copied")
    assert [folder.replay_buffer_of(tmp_path / f"{name}.zip") for name in names] == [
        *(None, None, None),
        *(folder.replay_buffer, folder.replay_buffer),
    ]
    for prefix in ("rl_model", "mine"):
        (tmp_path / f"{prefix}_replay_buffer_10_steps.pkl").touch()
        (tmp_path / f"{prefix}_vecnormalize_10_steps.pkl").touch()
        model = tmp_path / f"{prefix}_10_steps.zip"
        assert folder.replay_buffer_of(model) == tmp_path / f"{prefix}_replay_buffer_10_steps.pkl"
        assert folder.normalizer_of(model) == tmp_path / f"{prefix}_vecnormalize_10_steps.pkl"
