"""The layout of logs/."""

import os
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


def made(logs: Path, state: str) -> RunFolder:
    """Make the files of a run that stands so."""
    run = RunFolder.create(logs, "ppo", "Hopper-v5")
    (run.path / "0.monitor.csv").touch()
    if state not in ("running", "killed"):
        run.final_model.touch()
    if state == "failed":
        (run.settings_folder / "error.txt").touch()
    if state == "interrupted":
        run.write_interruption(3072, 10_000)
    if state == "killed":
        os.utime(run.path / "0.monitor.csv", (0, 0))
    return run


@pytest.mark.parametrize(
    ("made_so", "state", "description"),
    [
        ("finished", "finished", "finished"),
        ("running", "running", "is running"),
        ("failed", "failed", "failed with an error"),
        ("interrupted", "interrupted", "was interrupted after 3,072 of 10,000 steps"),
        ("killed", "interrupted", "ended without a final model"),
    ],
)
def test_states(tmp_path: Path, made_so: str, state: str, description: str) -> None:
    run = made(tmp_path, made_so)
    assert run.state == (state, description)
    assert RunFolder.at(run.path).state == (state, description)


def test_what_a_run_says_of_its_interruption_is_not_believed_blindly(tmp_path: Path) -> None:
    run = made(tmp_path, "interrupted")
    for text in ("steps: [1]\nof: [5]", "steps: -1\nof: 1e999", f"steps: 1\nof: {10**40}", "- 1", "a: [", ""):
        (run.settings_folder / "interrupted.yml").write_text(text)
        assert run.state == ("interrupted", "was interrupted")


@pytest.mark.parametrize(
    ("states", "number", "why"),
    [
        (["finished"], 1, "is taken: the only one."),
        (["finished", "finished"], 2, "is taken: the latest."),
        (
            ["finished", "interrupted"],
            1,
            "is taken: the latest that finished; run 2 was interrupted after 3,072 of 10,000 steps "
            "(--exp-id takes another).",
        ),
        (
            ["finished", "failed", "killed", "running", "interrupted"],
            1,
            "is taken: the latest that finished; run 5 was interrupted after 3,072 of 10,000 steps; run 4 is running; "
            "run 3 ended without a final model; 1 more did not finish (--exp-id takes another).",
        ),
        (
            ["killed", "interrupted", "running"],
            2,
            "is taken: none has finished, and it is the latest with a model, which was interrupted after 3,072 of "
            "10,000 steps; run 3 is running (--exp-id takes another).",
        ),
        (["interrupted"], 1, "is taken: the only one, which was interrupted after 3,072 of 10,000 steps."),
    ],
)
def test_the_latest_that_finished_is_taken(tmp_path: Path, states: list[str], number: int, why: str) -> None:
    runs = [made(tmp_path, state) for state in states]
    found = RunFolder.find(tmp_path, "ppo", "Hopper-v5")
    assert found.path == runs[number - 1].path
    assert found.choice == f"run {number} of ppo on Hopper-v5 {why}"
    latest = RunFolder.find(tmp_path, "ppo", "Hopper-v5", finished=False)
    assert latest.path == runs[-1].path
    named = RunFolder.find(tmp_path, "ppo", "Hopper-v5", len(runs))
    assert named.path == runs[-1].path
    said = "" if states[-1] == "finished" else f"run {len(runs)} of ppo on Hopper-v5 {runs[-1].state.description}."
    assert named.choice == said


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
