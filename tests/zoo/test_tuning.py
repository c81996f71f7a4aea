"""`polyak tune` from end to end, with trainings of a few steps."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from optuna.trial import TrialState

from polyak.zoo.tuning import studies
from tests.processes import PATIENCE, assert_gone, nodes
from tests.zoo.test_cli import run

#: The space of these tests; `trial.number` decides which ones crash, diverge, wait for a file or end their process.
SPACE = """
import os
import time
from pathlib import Path

def tiny(trial):
    return {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
            "policy_kwargs": {"net_arch": [trial.suggest_int("width", 4, 8)]}}

def own_units(trial):
    from polyak.algorithm_info import Search, Task, tune
    parts = Search(tune.one_of("n_epochs", [1, 2]), tune.discount(), tune.power_of_two("n_steps", 4, 8))
    return {**tiny(trial), **parts(trial, Task(64)), "batch_size": 4}

def crashing(trial):
    if trial.number == 1:
        raise OSError("no more memory")
    return {**tiny(trial), **({"learning_rate": 1e30, "max_grad_norm": 1e30} if trial.number == 2 else {})}

def failing(trial):
    if Path("logs").exists():  # the study has begun
        raise OSError(f"no disk for trial {trial.number}")
    return tiny(trial)

def impossible(trial):
    return {**tiny(trial), "n_steps": -trial.suggest_int("n", 1, 9)}

def waiting(trial):
    while trial.number >= 2 and not Path("go").exists():
        time.sleep(0.05)
    return tiny(trial)

def dying(trial):
    if trial.number == 1:
        os._exit(1)
    return tiny(trial)
"""
BASE = ["n_steps:16", "batch_size:16", "n_epochs:1", "n_envs:1", "clip_range:0.2"]


def tune(*more: object, space: str = "tiny") -> list[str]:
    """A command that tunes a little; later flags replace earlier ones."""
    small = ["-n", 48, "--eval-episodes", 1, "--n-evaluations", 2, "--n-startup-trials", 2, "--seed", 3]
    command = ["tune", "--space", f"space.py:{space}", "-params", *BASE, *small, "--no-optim-plots", *more]
    return [str(word) for word in command]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of spaces."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.py").write_text(SPACE)
    return tmp_path


def trials(place: str = "logs/ppo/study_ppo_CartPole-v1.journal", name: str = "ppo_CartPole-v1") -> list[Any]:
    """The finished trials of a study."""
    return studies.finished(studies.load_study(studies.open_storage(place), name))


def test_a_study_its_report_and_training_with_the_best(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*[word for word in tune("--n-trials", 5, "--seeds", 2) if word != "--no-optim-plots"]) == 0
    assert "5 trials: " in capsys.readouterr().out
    logs = folder / "logs" / "ppo"
    (table,), (page,), (settings,) = (list(logs.glob(f"report_*.{suffix}")) for suffix in ("csv", "html", "yml"))
    assert table.name.startswith("report_CartPole-v1_5-trials-48-tpe-median_")
    rows = pd.read_csv(table, index_col=0)
    assert {"number", "value", "params_width", "params_learning_rate", "state"} <= set(rows.columns)
    assert len(rows) == 5
    text = page.read_text()
    assert "Optimization History" in text
    assert "Slice Plot" in text
    assert "Parallel Coordinate" in text
    assert "cdn.plot.ly" not in text.replace("https://cdn.plot.ly/un", ""), "the page needs no network"
    best = max(trials(), key=lambda trial: (trial.value or -np.inf, sum(trial.intermediate_values.values())))
    block = yaml.safe_load(settings.read_text())["CartPole-v1"]
    assert block == best.user_attrs["settings"]
    assert block["policy_kwargs"]["net_arch"] == [best.params["width"]]
    assert len(best.user_attrs["returns_of_seeds"]) == 2
    assert best.value == pytest.approx(np.mean(best.user_attrs["returns_of_seeds"]))
    train = ["train", "--conf-file", settings, "--eval-freq", -1, "--verbose", 0]
    assert run(*train) == 0
    config = yaml.safe_load((logs / "CartPole-v1_1" / "CartPole-v1" / "config.yml").read_text())
    assert config == block

    capsys.readouterr()
    assert run("tune", "--trial-id", 3) == 0
    assert yaml.safe_load(capsys.readouterr().out.split("Train with it")[0]) == {
        "CartPole-v1": next(trial for trial in trials() if trial.number == 3).user_attrs["settings"]
    }
    assert run("train", "--trial-id", 3, "--eval-freq", -1, "--verbose", 0, "-n", 16) == 0
    assert run("train", "--trial-id", 33) == 2
    assert "Trials there: 0 to 4" in capsys.readouterr().err


def test_settings_are_shown_in_the_units_of_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Optuna draws exponents, places in lists and 1 - gamma; what is printed and written are settings."""
    left_out = {"--no-optim-plots", "n_steps:16", "batch_size:16", "n_epochs:1"}
    command = [word for word in tune("--n-trials", 3, space="own_units") if word not in left_out]
    assert run(*command, "--verbose", 2) == 0
    printed = capsys.readouterr().out
    logs = folder / "logs" / "ppo"
    (table,), (page,), (settings,) = (list(logs.glob(f"report_*.{suffix}")) for suffix in ("csv", "html", "yml"))
    block = yaml.safe_load(settings.read_text())["CartPole-v1"]
    best = printed[printed.index("Best trial: ") :].partition("Report: ")[0]
    assert yaml.safe_load(best.partition("\n")[2]) == block
    assert block["n_steps"] in (4, 8)
    for name in ("n_steps_pow", "n_epochs_index", "one_minus_gamma"):
        assert name not in printed, "neither for the best, nor for each trial"
    assert printed.count("n_steps: ") == 4
    rows = pd.read_csv(table, index_col=0)
    assert rows["settings_n_steps"].tolist() == (2 ** rows["params_n_steps_pow"]).tolist()
    assert rows["settings_gamma"].tolist() == pytest.approx((1 - rows["params_one_minus_gamma"]).tolist(), rel=1e-3)
    assert "settings_policy" not in rows, "what all trials share is in the file of settings"
    assert f"n_steps: {block['n_steps']}" in page.read_text()


def test_equal_seeds_give_equal_trials_also_after_a_pause() -> None:
    assert run(*tune("--n-trials", 5, "--storage", "a.journal")) == 0
    assert run(*tune("--n-trials", 3, "--storage", "b.journal")) == 0
    assert run(*tune("--n-trials", 5, "--storage", "b.journal")) == 0
    one, two = trials("a.journal"), trials("b.journal")
    assert [trial.params for trial in one] == [trial.params for trial in two]
    assert [trial.value for trial in one] == [trial.value for trial in two]
    assert [trial.intermediate_values for trial in one] == [trial.intermediate_values for trial in two]
    assert run(*tune("--n-trials", 1, "--seeds", 2, "--storage", "c.journal")) == 0
    (three,) = trials("c.journal")
    first, second = three.user_attrs["returns_of_seeds"]
    assert first == one[0].value != second, "two trainings in turns do not disturb each other's random numbers"


def test_a_trial_that_crashes_or_diverges_does_not_stop_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*tune("--n-trials", 4, space="crashing")) == 0
    states = [trial.state for trial in trials()]
    assert states[1] == states[2] == TrialState.FAIL
    assert TrialState.COMPLETE in states
    assert trials()[1].user_attrs["reason"] == "OSError: no more memory"
    assert trials()[2].user_attrs["reason"].startswith("NonFiniteError: ")
    assert "the first with OSError: no more memory" in capsys.readouterr().err


def test_if_all_trials_fail_the_first_reason_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*tune("--n-trials", 15, space="failing")) == 2
    printed = capsys.readouterr().err
    assert (
        "No trial of the study ppo_CartPole-v1 succeeded. The first failed with OSError: no disk for trial 0" in printed
    )
    assert len(trials()) == 10, "so many failures are enough"


def test_what_the_command_fixes_stays_and_is_written(folder: Path) -> None:
    fixed = ["policy_kwargs:dict(net_arch=[4], activation_fn=nn.ReLU)", "gamma:0.5"]
    command = tune("--n-trials", 2, "--env-kwargs", "sutton_barto_reward:True")
    assert run(*command[:-2], "-params", *BASE, *fixed, *command[-2:]) == 0
    (settings,) = (folder / "logs" / "ppo").glob("report_*.yml")
    block = yaml.safe_load(settings.read_text())["CartPole-v1"]
    assert block["policy_kwargs"] == "dict(net_arch=[4], activation_fn=nn.ReLU)"
    assert block["gamma"] == 0.5
    assert block["env_kwargs"] == {"sutton_barto_reward": True}
    assert run("train", "--conf-file", settings, "--eval-freq", -1, "--verbose", 0) == 0


@pytest.mark.slow
def test_processes_share_a_study() -> None:
    assert run(*tune("--n-trials", 5, "--n-jobs", 2, "--storage", "shared.journal", "--study-name", "both")) == 0
    found = trials("shared.journal", "both")
    assert len(found) == 5
    assert len({trial.params["learning_rate"] for trial in found}) == 5
    assert os.getpid() not in {trial.user_attrs["worker"]["pid"] for trial in found}


@pytest.mark.slow
def test_a_killed_study_continues_and_ends_with_as_many_trials(folder: Path) -> None:
    """Two processes of one command wait in the middle of their trials when the command is killed."""
    command = [sys.executable, "-m", "polyak", *tune("--n-trials", 5, "--n-jobs", 2, space="waiting")]
    journal = folder / "logs" / "ppo" / "study_ppo_CartPole-v1.journal"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        running: list[Any] = []
        until = time.monotonic() + PATIENCE
        while len(running) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
            if journal.exists() and b"ppo_CartPole-v1" in journal.read_bytes():
                study = studies.load_study(studies.open_storage(str(journal)), "ppo_CartPole-v1")
                running = [t for t in study.get_trials(states=(TrialState.RUNNING,)) if t.number >= 2]
                running = [trial for trial in running if "worker" in trial.user_attrs]
        assert len(running) == 2, process.communicate()[1]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    workers = {trial.user_attrs["worker"]["pid"] for trial in running}
    assert_gone(workers)
    assert len(trials()) == 2
    (folder / "go").touch()
    assert run(*tune("--n-trials", 5, space="waiting")) == 0
    assert len(trials()) == 5
    assert {trial.number for trial in trials()} >= {0, 1}, "what was finished is kept"


@pytest.mark.slow
def test_trials_on_ray_share_a_study_and_one_that_dies_stops_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with nodes(2) as address:
        joined = ("--ray", "--address", address)
        assert run(*tune("--n-trials", 5, *joined, space="dying")) == 0
        assert run(*tune("--n-trials", 6, *joined, "--num-cpus-per-trial", 3, space="dying")) == 2
        assert "each reserves 3 CPU" in capsys.readouterr().err
    found = trials()
    assert len(found) == 5
    assert {trial.state for trial in found} == {TrialState.COMPLETE}
    assert os.getpid() not in {trial.user_attrs["worker"]["pid"] for trial in found}
    every = studies.load_study(studies.open_storage("logs/ppo/study_ppo_CartPole-v1.journal"), "ppo_CartPole-v1").trials
    assert [trial.user_attrs.get("lost", False) for trial in every].count(True) == 1, "and its settings are tried again"


def test_train_optimizes_with_the_flags_of_the_zoo(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["-optimize", "--n-trials", 2, "--n-startup-trials", 1, "--n-evaluations", 2, "--no-optim-plots"]
    where = ["--storage", "study.journal", "--study-name", "mine", "--optimization-log-path", "trials"]
    how = ["--sampler", "random", "--pruner", "none", "--n-jobs", 1, "--eval-episodes", 2, "-n", 256, "--seed", 5]
    assert run("train", "--algo", "ppo", "--env", "CartPole-v1", *flags, *where, *how, "-params", "n_epochs:1") == 0
    assert len(trials("study.journal", "mine")) == 2
    assert list((folder / "logs" / "ppo").glob("report_CartPole-v1_2-trials-256-random-none_*.csv"))
    with np.load(folder / "trials" / "trial_1" / "evaluations.npz") as evaluations:
        assert evaluations["timesteps"].tolist() == [128, 256]
        assert evaluations["results"].shape == evaluations["ep_lengths"].shape == (2, 2)
    assert (folder / "trials" / "trial_1" / "best_model.zip").is_file()
    assert not (folder / "logs" / "ppo" / "CartPole-v1_1").exists(), "trials leave no run folders"
    capsys.readouterr()
    assert run("train", "-optimize", "--save-freq", 10) == 2
    assert "--save-freq cannot be combined with --optimize-hyperparameters" in capsys.readouterr().err
    assert run("train", "--n-trials", 10) == 2
    assert "--n-trials needs --optimize-hyperparameters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sampler", "tep"], "--sampler must be one of tpe, random, cmaes, gp, auto, got 'tep'. Did you mean 'tpe'"),
        (["--pruner", "mean"], "--pruner must be one of"),
        (["--objective", "best"], "--objective must be one of median, mean, iqm"),
        (["--n-trials", 0], "--n-trials must be at least 1, got 0"),
        (["--seeds", 0], "--seeds must be at least 1"),
        (["--n-jobs", 0], "--n-jobs must be at least 1"),
        (["--max-total-trials", 0], "--max-total-trials must be at least 1 (or left out)"),
        (["--prune-confidence", 0.3], "--prune-confidence must be at least 0.5"),
        (["--percentile", 100], "--percentile must lie between 0 and 100"),
        (["--n-evaluations", 9, "-n", 8], "--n-evaluations 9 are more than"),
        (["--address", "auto"], "--address means nothing here: no trial is on a cluster. Give --ray"),
        (["--ray", "--working-dir", "nowhere"], "--working-dir 'nowhere' is not a folder"),
        (["--vec-env", "threads"], "--vec-env must be one of dummy, subproc"),
        (["--algo", "pop"], "Unknown algorithm --algo 'pop'"),
        (["--algo", "sac"], "Cannot build sac for CartPole-v1"),
        (["-params", "n_stepz:3"], "Unknown setting 'n_stepz'"),
        (["--env-kwargs", "gravity:1"], "Cannot make the environment CartPole-v1"),
        (["--space", "space.py:tinny"], "has no class or function 'tinny'. Did you mean 'tiny'"),
        (["--space", "space.py"], "is not of the form file.py:FUNCTION"),
        (["--space", "missing.py:tiny"], "there is no file"),
        (["--space", "space.py:impossible"], "Cannot build ppo for CartPole-v1: n_steps=-"),
        (["--storage", "redis://host"], "is not the URL of a database"),
        (["--storage", "space.py/x"], "--storage 'space.py/x' cannot be written"),
        (["--trial-id", 0], "There is no study in"),
        (["-f", "space.py"], "--log-folder 'space.py' cannot be written"),
    ],
)
def test_mistakes_are_reported_before_anything_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], message: str
) -> None:
    assert run("tune", *arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert {path.name for path in folder.rglob("*")} <= {"space.py", "__pycache__", "space.cpython-311.pyc"}
