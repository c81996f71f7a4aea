"""Results as files, from the same dicts that ``train()`` returns."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from polyak.compat.rllib_face import result_files
from polyak.compat.run import MARK
from polyak.hyperparameters.declaration import HyperparameterError
from tests.compat.rllib_face.test_algorithm import ppo


def rows_of(folder: Any) -> list[dict[str, str]]:
    with open(Path(folder) / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def lines_of(folder: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / "result.json").read_text().splitlines()]


def test_results_are_written_where_the_config_says(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = ppo().debugging(logger_config={"logdir": str(folder)}).evaluation(evaluation_duration=1)
    config.callbacks(on_train_result=lambda result, **_: result.update(mine={"a": {"b": 7}}))
    with config.build() as algo:
        results = [algo.train(), algo.train()]
        assert algo.logdir == str(folder)
    rows, lines = rows_of(folder), lines_of(folder)
    assert [row["training_iteration"] for row in rows] == ["1", "2"]
    assert rows[1]["mine/a/b"] == "7"
    loss = results[1]["learners"]["default_policy"]["total_loss"]
    assert float(rows[1]["learners/default_policy/total_loss"]) == loss
    assert lines[1]["learners"]["default_policy"]["total_loss"] == loss
    assert "config" not in {name.split("/")[0] for name in rows[0]}
    assert json.loads((folder / "params.json").read_text())["lr"] == 1e-3
    with pytest.raises(HyperparameterError, match="another training"):
        config.build()
    with pytest.raises(HyperparameterError, match="logger_config"):
        config.debugging(logger_config={"type": "csv"})


def test_results_are_drawn_for_tensorboard(tmp_path: Path) -> None:
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with ppo().debugging(logger_config={"logdir": tmp_path}).build() as algo:
        results = [algo.train(), algo.train()]
    curves = loading.EventAccumulator(str(tmp_path)).Reload()
    steps = [(point.step, point.value) for point in curves.Scalars("ray/tune/num_env_steps_sampled_lifetime")]
    assert steps == [(1, results[0]["num_env_steps_sampled_lifetime"]), (2, 256)]
    assert not {"ray/tune/pid", "ray/tune/training_iteration"} & set(curves.Tags()["scalars"])


def test_a_folder_is_made_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.setattr(result_files, "FOLDER", tmp_path / "ray_results")
    with ppo().build() as algo:
        algo.train()
        algo.train()
        assert not list(tmp_path.iterdir())
        folder = Path(algo.logdir)
        algo.train()
    assert folder.parent == tmp_path / "ray_results"
    assert folder.name.startswith("PPO_CartPole-v1_")
    assert [row["training_iteration"] for row in rows_of(folder)] == ["2", "3"]
    monkeypatch.setenv(MARK, "here")
    with ppo().build() as algo:
        algo.train()
    (other,) = set((tmp_path / "ray_results").iterdir()) - {folder}
    assert len(lines_of(other)) == 1


def test_throughputs_are_of_one_iteration() -> None:
    with ppo().build() as algo:
        result = algo.train()
        result, second = result, algo.train()
    learned = result["learners"]["__all_modules__"]
    trained = learned["num_env_steps_trained_lifetime_throughput"]
    sampled = result["env_runners"]["num_env_steps_sampled_lifetime_throughput"]
    for name in ("throughput_since_last_reduce", "throughput_since_last_restore"):
        assert trained[name] / sampled[name] == pytest.approx(learned["num_env_steps_trained"] / 128)
    rates = second["env_runners"]["num_env_steps_sampled_lifetime_throughput"]
    first = sampled["throughput_since_last_reduce"]
    between = sorted((first, rates["throughput_since_last_reduce"]))
    # the first iteration also counts what follows its rate: a mean of both rates, or less
    assert rates["throughput_since_last_restore"] <= between[1]
