"""``--track``: the numbers that other sinks get, in W&B and MLflow; what goes wrong there does not stop a training."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polyak.logging.logger import Image, Logger, Video
from polyak.zoo.errors import TrainingFailed, ZooError
from polyak.zoo.tracking import WandbOutputFormat, flat
from polyak.zoo.train import TrainOptions, train

SMALL = ["n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2"]


def options(folder: Path, **more: Any) -> TrainOptions:
    """A training of a second or two that logs every rollout."""
    return TrainOptions(
        n_timesteps=128, eval_freq=64, eval_episodes=1, log_folder=str(folder), hyperparams=SMALL, verbose=0, **more
    )


class Run:
    """Stands in for a run of W&B's."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments, self.logged, self.ended = arguments, [], None

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.ended = exit_code


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Put a module in the place of W&B's; gives the runs that it began."""
    runs: list[Run] = []

    def init(**arguments: Any) -> Run:
        runs.append(Run(**arguments))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return runs


def test_wandb(tmp_path: Path, wandb: list[Run]) -> None:
    tensorboard = tmp_path / "tb"
    model = train(
        options(
            tmp_path,
            track=True,
            wandb_project_name="mine",
            wandb_entity="us",
            wandb_group="g",
            wandb_tags=["a", "b"],
            seed=3,
            tensorboard_log=str(tensorboard),
        )
    )
    (run,) = wandb
    assert run.arguments["project"] == "mine"
    assert run.arguments["entity"] == "us"
    assert run.arguments["group"] == "g"
    assert run.arguments["tags"] == ["a", "b"]
    assert run.arguments["name"] == "CartPole-v1__ppo__3__CartPole-v1_1"
    assert run.arguments["config"]["n_steps"] == 16
    assert run.arguments["config"]["args"]["seed"] == 3
    steps = [step for step, _ in run.logged]
    assert steps == sorted(steps)
    assert steps[-1] == model.num_timesteps
    keys = {key for _, values in run.logged for key in values}
    assert {"rollout/ep_rew_mean", "train/loss", "eval/mean_reward", "time/total_timesteps"} <= keys
    assert all(isinstance(value, float) for _, values in run.logged for value in values.values())
    assert run.ended == 0
    assert list(tensorboard.rglob("events.out.*")), "other sinks stay"


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.chdir(tmp_path)
    tracked = {"track": True, "track_with": "mlflow", "wandb_group": "g", "wandb_tags": ["quick"]}
    train(options(tmp_path, tensorboard_log=str(tmp_path / "tb"), **tracked))
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("sb3")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["n_steps"] == "16"
    assert run.data.params["args.eval_freq"] == "64"
    assert run.data.tags["quick"] == "true"
    assert run.data.tags["group"] == "g"
    (events,) = (tmp_path / "tb").rglob("events.out.*")
    board = EventAccumulator(str(events.parent))
    board.Reload()
    for key in ("train/loss", "eval/mean_reward"):
        there = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, key)]
        here = [(event.step, event.value) for event in board.Scalars(key)]
        assert [step for step, _ in there] == [step for step, _ in here]
        assert [value for _, value in there] == pytest.approx([value for _, value in here], rel=1e-6)


def test_a_service_that_fails_does_not_end_the_training(
    tmp_path: Path, wandb: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def log(self: Run, values: dict[str, float], step: int) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(Run, "log", log)
    assert train(options(tmp_path, track=True)).num_timesteps == 128
    said = capsys.readouterr().err
    assert said.count("--track: wandb fails, so the rest of this run is not tracked (no route to host)") == 1


def test_a_service_that_does_not_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**arguments: Any) -> None:
        raise RuntimeError("api_key not\nconfigured")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    with pytest.raises(ZooError, match="--track: wandb cannot begin a run: api_key not configured"):
        train(options(tmp_path / "logs", track=True))
    assert not (tmp_path / "logs").exists()


def test_a_training_that_fails_is_marked(tmp_path: Path, wandb: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    from polyak import PPO

    def learn(self: Any, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(PPO, "learn", learn)
    with pytest.raises(TrainingFailed, match="RuntimeError: broken; training failed after 0 steps; the model is in"):
        train(options(tmp_path, track=True))
    assert wandb[0].ended == 3


def test_only_numbers_are_sent() -> None:
    import numpy as np
    import torch

    run = Run()
    logger = Logger(None, [WandbOutputFormat(run)])
    logger.record("a/number", np.float32(0.5))
    logger.record("a/tensor", torch.tensor(3))
    logger.record("a/flag", True)
    logger.record("a/nan", float("nan"))
    logger.record("a/text", "hello")
    logger.record("a/film", Video(torch.zeros(1, 1, 3, 2, 2), 1.0))
    logger.record("a/image", Image(np.zeros((2, 2, 3)), "HWC"))
    logger.record("a/hidden", 1.0, exclude="wandb")
    logger.dump(7)
    assert run.logged == [(7, {"a/number": 0.5, "a/tensor": 3.0, "a/flag": 1.0})]
    logger.dump(8)
    assert len(run.logged) == 1, "nothing to say, nothing sent"


def test_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZooError, match="--track-with must be one of wandb, mlflow, got 'wanbd'. Did you mean 'wandb'"):
        TrainOptions(track_with="wanbd")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"--track with wandb needs wandb: pip install 'polyak\[track\]'"):
        train(TrainOptions(track=True))


def test_nested_settings_in_one_level() -> None:
    assert flat({"a": 1, "b": {"c": {"d": 2}, "e": [3]}}) == {"a": 1, "b.c.d": 2, "b.e": [3]}
