"""Whatever ends ``polyak train``: what was learned is saved, and message and exit status say so."""

import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from polyak import PPO
from polyak.callbacks.saving import CheckpointCallback
from polyak.envs import VecNormalize, make_vec_env
from polyak.envs.wrappers.monitor import ResultsWriter
from polyak.zoo.registry import find_algorithm
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.run_notes import ProgressFile
from tests.zoo.faulty import ENV_ID, LINE, SPEC
from tests.zoo.test_cli import run

SETTINGS = {
    "ppo": [
        "n_envs:2",
        "n_steps:16",
        "batch_size:32",
        "n_epochs:1",
        "normalize:dict(norm_obs=False)",
        "policy:'MlpPolicy'",
    ],
    "dqn": ["n_envs:1", "learning_starts:16", "batch_size:8", "buffer_size:1000", "policy:'MlpPolicy'"],
    "ars": ["n_envs:1", "n_delta:2", "policy:'LinearPolicy'"],
    "q_learning": ["n_envs:1"],
    "impala": ["n_envs:2", "n_steps:8", "policy:'MlpPolicy'"],
}
ALGORITHMS = ["ppo", "dqn", "ars", "q_learning", "impala"]


def train(folder: Path, algo: str, *words: object, n: int = 5000) -> int:
    """Run the command in this process and return its exit status."""
    command = ["train", "--algo", algo, "--env", SPEC, "-f", folder, "-n", n, "--seed", 1, "--verbose", 0, *words]
    return run(*command, "-params", *SETTINGS[algo])


def faulty(**kwargs: object) -> list[str]:
    return ["--env-kwargs", *(f"{name}:{value!r}" for name, value in kwargs.items())]


def is_kept(folder: Path, algo: str, said: str) -> Any:
    """Check what is left of a training that failed, and what was said; returns the model."""
    run = RunFolder.find(folder, algo, ENV_ID)
    assert f"the model is in {run.final_model}" in said
    assert said.count("Traceback (most recent call last)") >= 1
    model = find_algorithm(algo).load(run.final_model)
    assert 0 < model.num_timesteps < 5000
    assert f"training failed after {model.num_timesteps:,} steps" in said
    assert run.read_yaml("config.yml")
    assert run.read_yaml("args.yml")["algo"] == algo
    assert list(folder.rglob(".*")) == [], "nothing half-written"
    assert "polyak: " not in (run.settings_folder / "error.txt").read_text(encoding="utf-8")
    if algo == "ppo":
        assert isinstance(run.normalizer, Path)
        assert run.normalizer.is_file()
    return model


@pytest.mark.parametrize(("algo", "in_reset"), [*((algo, False) for algo in ALGORITHMS), ("ppo", True), ("dqn", True)])
def test_the_environment_raises(algo: str, in_reset: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, algo, "--eval-freq", -1, *faulty(fault="RuntimeError", in_reset=in_reset)) == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, algo, said)
    assert said.count(LINE) == 1
    assert said.count("RuntimeError: a bad day") == 1
    assert "faulty.py" in said


@pytest.mark.parametrize(
    ("algo", "fault"),
    [
        *zip(
            ["ppo", "dqn", "q_learning"] * 2,
            ["MemoryError", "deep", "SystemExit", "KeyError", "NaN", "NaN"],
            strict=True,
        )
    ],
)
def test_other_faults_of_the_environment(
    algo: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, algo, "--eval-freq", -1, *faulty(fault=fault)) == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, algo, said)
    message = {"deep": "RecursionError: ", "NaN": "reward"}.get(fault, f"{fault}: ")
    assert message in said
    assert len(said.splitlines()) < 150


@pytest.mark.parametrize("algo", ["ppo", "dqn", "ars"])
def test_the_environment_of_evaluations_raises(algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, algo, "--eval-freq", 20, "--eval-env-kwargs", "fault:'RuntimeError'", "after:8") == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, algo, said)
    assert said.count(LINE) == 1


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_process_of_environments_is_killed(algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, algo, "--eval-freq", -1, "--vec-env", "subproc", *faulty(fault="killed")) == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, algo, said)
    assert "SIGKILL" in said


@pytest.mark.parametrize("algo", ["dqn", "impala"])
def test_a_callback_raises(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(self: ProgressFile) -> bool:
        if self.num_timesteps > 50:
            raise ZeroDivisionError("in a callback")
        return True

    def end(self: ProgressFile) -> None:
        raise OSError("the callback cannot end, either")

    monkeypatch.setattr(ProgressFile, "_on_step", step)
    monkeypatch.setattr(ProgressFile, "_on_training_end", end)
    with pytest.warns(UserWarning, match="the callback cannot end, either"):
        assert train(tmp_path, algo, "--eval-freq", -1) == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, algo, said)
    assert "ZeroDivisionError: in a callback" in said
    assert "Traceback" in (RunFolder.find(tmp_path, algo, ENV_ID).settings_folder / "error.txt").read_text()


def spoil(self: ProgressFile) -> bool:
    """Weights become NaN from the 101st step on."""
    if self.num_timesteps > 100:
        with torch.no_grad():
            next(self.model.learner.parameters()).fill_(np.nan)
    return True


@pytest.mark.parametrize("algo", ["ppo", "dqn", "impala"])
def test_weights_become_nan(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ProgressFile, "_on_step", spoil)
    assert train(tmp_path, algo, "--eval-freq", -1) == 3
    said = capsys.readouterr().err
    model = is_kept(tmp_path, algo, said)
    assert said.count("Everything learned was put back to what it was after gradient step") == 1
    assert all(bool(parameter.isfinite().all()) for parameter in model.learner.parameters())
    action, _ = model.predict(np.array(0))
    assert action in (0, 1)


def test_weights_that_are_nan_for_good_are_not_saved_as_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from polyak.learning.nan_guard import Guard

    monkeypatch.setattr(ProgressFile, "_on_step", spoil)
    monkeypatch.setattr(Guard, "put_back", lambda self: False)
    assert train(tmp_path, "dqn", "--eval-freq", -1, "--save-freq", 50, "--save-replay-buffer") == 1
    said = capsys.readouterr().err
    run = RunFolder.find(tmp_path, "dqn", ENV_ID)
    assert "the model could not be saved: ValueError: its parameters" in said
    assert "hold NaN or infinity, with which it cannot act" in said
    assert f"Models in {run.path} from before: rl_model_" in said
    assert not run.final_model.exists()
    assert run.replay_buffer.is_file()


def test_ctrl_c_on_weights_that_are_nan_puts_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoil_and_stop(self: ProgressFile) -> bool:
        if spoil(self) and self.num_timesteps > 100:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(ProgressFile, "_on_step", spoil_and_stop)
    with pytest.warns(UserWarning, match="Everything learned was put back"):
        assert train(tmp_path, "dqn", "--eval-freq", -1) == 130
    model = find_algorithm("dqn").load(RunFolder.find(tmp_path, "dqn", ENV_ID).final_model)
    assert all(bool(parameter.isfinite().all()) for parameter in model.learner.parameters())


# -- a full disk -------------------------------------------------------------------------------------------------------


class FullDisk:
    """An open file with room for ten bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> int:
        self._file.write(bytes(content)[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that lets the disk be full for files whose names begin with one of some words."""
    opened = Path.open

    def full_for(*words: str) -> None:
        def open_one(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            file = opened(path, mode, *args, **kwargs)
            return FullDisk(file) if mode == "wb" and path.name.lstrip(".").startswith(words) else file

        monkeypatch.setattr(Path, "open", open_one)

    return full_for


@pytest.mark.parametrize(
    ("algo", "file"), [("ppo", "evaluations"), ("dqn", "best_model"), ("ars", "rl_model"), ("dqn", "monitor")]
)
def test_no_room_on_the_disk_during_training(
    algo: str,
    file: str,
    tmp_path: Path,
    no_room: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if file == "monitor":
        monkeypatch.setattr(ResultsWriter, "write_row", full)
    else:
        no_room(file)
    assert train(tmp_path, algo, "--eval-freq", 20, "--save-freq", 60) == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, algo, said)
    assert said.count(f"OSError: [Errno {errno.ENOSPC}]") == 1


def test_no_room_for_the_final_model_either(
    tmp_path: Path, no_room: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    no_room("rl_model_100", "Faulty", "error", "vecnormalize")
    assert train(tmp_path, "ppo", "--eval-freq", -1, "--save-freq", 50) == 1
    said = capsys.readouterr().err
    run = RunFolder.find(tmp_path, "ppo", ENV_ID)
    assert "training failed after" in said
    assert f"the model could not be saved: OSError: [Errno {errno.ENOSPC}]" in said
    assert f"the normalisation statistics could not be saved: OSError: [Errno {errno.ENOSPC}]" in said
    assert "rl_model_64_steps.zip" in said or "rl_model_50_steps.zip" in said
    assert said.count("Traceback") == 1, "of the first error"
    assert not run.final_model.exists()
    assert list(tmp_path.rglob(".*")) == [], "nothing half-written"


def test_a_training_that_ended_well_and_cannot_be_saved(
    tmp_path: Path, no_room: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    no_room("Faulty")
    assert train(tmp_path, "ppo", "--eval-freq", -1, n=64) == 1
    said = capsys.readouterr().err
    assert f"training ended after 64 steps; the model could not be saved: OSError: [Errno {errno.ENOSPC}]" in said
    assert "from before: none" in said
    assert not list(tmp_path.rglob("*.zip"))


def test_no_room_for_the_replay_buffer_costs_only_that(
    tmp_path: Path, no_room: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    no_room("replay_buffer")
    words = ["--eval-freq", -1, "--save-replay-buffer", *faulty(fault="RuntimeError")]
    assert train(tmp_path, "dqn", *words) == 3
    said = capsys.readouterr().err
    is_kept(tmp_path, "dqn", said)
    assert f"the replay buffer could not be saved: OSError: [Errno {errno.ENOSPC}]" in said
    assert not RunFolder.find(tmp_path, "dqn", ENV_ID).replay_buffer.exists()


def test_the_replay_buffer_is_kept(tmp_path: Path) -> None:
    words = ["--eval-freq", -1, "--save-replay-buffer", *faulty(fault="RuntimeError", at_close=True)]
    assert train(tmp_path, "dqn", *words) == 3
    run = RunFolder.find(tmp_path, "dqn", ENV_ID)
    model = find_algorithm("dqn").load(run.final_model)
    model.load_replay_buffer(run.replay_buffer)
    assert model.replay_buffer.size() == model.num_timesteps == 49


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """The caller of the tests may ignore Ctrl-C; and Ray, once started in this process, handles SIGTERM itself."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    usual |= {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def raise_signals_while_saving(number: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the signal come once in training, and then so many times while the model is saved."""
    from polyak.checkpoint import saved as checkpoint

    write = checkpoint.save

    def saved(*args: Any, **kwargs: Any) -> None:
        for _ in range(times):
            signal.raise_signal(number)
        write(*args, **kwargs)

    def step(self: ProgressFile) -> bool:
        if self.num_timesteps > 50:
            signal.raise_signal(number)
        return True

    monkeypatch.setattr(ProgressFile, "_on_step", step)
    monkeypatch.setattr(checkpoint, "save", saved)


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.usefixtures("usual_signals")
def test_a_signal_that_comes_twice_costs_nothing(
    number: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_signals_while_saving(getattr(signal, number), 1, monkeypatch)
    assert train(tmp_path, "dqn", "--eval-freq", -1) == status
    said = capsys.readouterr().err
    model = RunFolder.find(tmp_path, "dqn", ENV_ID).final_model
    assert f"interrupted after 51 steps; the model is in {model}" in said
    assert "already stopping" in said
    assert find_algorithm("dqn").load(model).num_timesteps == 51


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_once_more_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_signals_while_saving(signal.SIGINT, 2, monkeypatch)
    assert train(tmp_path, "dqn", "--eval-freq", -1, "--save-replay-buffer") == 1
    said = capsys.readouterr().err
    assert "interrupted after 51 steps; the model could not be saved: KeyboardInterrupt" in said
    assert not list(tmp_path.rglob("*.zip"))
    assert not list(tmp_path.rglob("*.pkl"))
    assert list(tmp_path.rglob(".*")) == []


def test_a_mistake_that_learning_finds_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(self: CheckpointCallback) -> None:
        raise ImportError("a package is missing")

    monkeypatch.setattr(CheckpointCallback, "_on_training_start", start)
    assert train(tmp_path, "dqn", "--eval-freq", -1, "--save-freq", 50) == 2
    assert capsys.readouterr().err == "polyak: a package is missing\n"
    assert list(tmp_path.iterdir()) == []


# -- neighbours --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("a bad day"), 3), (KeyboardInterrupt(), 130)])
def test_the_demonstration_keeps_its_agent(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: PPO) -> None:
        raise error

    monkeypatch.setattr(PPO, "train", fail)
    assert run("demo", "-o", tmp_path, "--no-progress") == status
    assert PPO.load(tmp_path / "ppo_cartpole.zip").num_timesteps > 0


def test_training_outlasts_an_output_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.TextIOWrapper):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Full((tmp_path / "output.txt").open("wb")) as output:
        monkeypatch.setattr("sys.stdout", output)
        assert train(tmp_path / "logs", "q_learning", "--eval-freq", -1, "--verbose", 1, n=100) == 0
        monkeypatch.undo()
    said = capsys.readouterr().err
    assert said.count("the output cannot be written any more") == 1
    assert RunFolder.find(tmp_path / "logs", "q_learning", ENV_ID).final_model.is_file()


def test_sys_exit_in_an_environment_ends_a_trial_and_not_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    words = ["tune", "--algo", "dqn", "--env", SPEC, "-n", 200, "--n-trials", 2, "--seed", 1, "--n-evaluations", 1]
    words += ["--log-folder", tmp_path, *faulty(fault="SystemExit")]
    run(*words, "-params", *SETTINGS["dqn"])
    said = capsys.readouterr()
    assert "Trial 1: failed: SystemExit: a bad day" in said.out, said.out + said.err


def test_normaliser_of_stable_baselines3_is_kept(tmp_path: Path) -> None:
    words = ["--eval-freq", -1, "--save-format", "sb3", *faulty(fault="RuntimeError")]
    assert train(tmp_path, "ppo", *words) == 3
    run = RunFolder.find(tmp_path, "ppo", ENV_ID)
    assert isinstance(VecNormalize.load(run.normalizer, make_vec_env(SPEC)), VecNormalize)
    assert find_algorithm("ppo").load(run.final_model).num_timesteps > 0
