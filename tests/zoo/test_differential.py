"""Beside RL Baselines3 Zoo itself: the same flags, the same files, and each reads what the other wrote."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.zoo.cli import load_command
from polyak.zoo.run_folder import RunFolder
from tests.zoo.the_zoo import PYTHON, needs_the_zoo, ours, program, theirs

pytestmark = [pytest.mark.slow, needs_the_zoo]

OF_THE_SEARCH = {
    *("-optimize", "--optimize-hyperparameters", "--optimization-log-path", "--n-trials", "--max-total-trials"),
    *("--no-optim-plots", "--n-jobs", "--sampler", "--pruner", "--n-startup-trials", "--n-evaluations", "--storage"),
    *("--study-name", "--trial-id"),
}
"""Flags of `train` that look for settings: they have tests of their own."""

SETTINGS = """
CartPole-v1:
  n_timesteps: !!float 1e3
  n_envs: 2
  n_steps: 64
  batch_size: 64
  n_epochs: 2
  normalize: "dict(norm_obs=True, norm_reward=True)"
  policy: 'MlpPolicy'
  policy_kwargs: "dict(net_arch=[16], activation_fn=nn.ReLU)"
  learning_rate: lin_1e-3
"""
TRAIN = ["--algo", "ppo", "--env", "CartPole-v1", "-n", "1000", "--eval-freq", "400", "--eval-episodes", "3"]
TRAIN += ["--save-freq", "400", "--seed", "1", "-conf", "settings.yml", "-params", "gamma:0.98"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where both have trained with the same words: `theirs/`, and `ours/` in Stable-Baselines3's format."""
    folder = tmp_path_factory.mktemp("differential")
    (folder / "settings.yml").write_text(SETTINGS)
    theirs("train", *TRAIN, "-f", "theirs", folder=folder)
    ours("train", *TRAIN, "-f", "ours", "--save-format", "sb3", folder=folder)
    return folder


def runs(place: Path) -> list[RunFolder]:
    return [RunFolder.find(place / name, "ppo", "CartPole-v1") for name in ("theirs", "ours")]


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("train", "train"),
        ("enjoy", "enjoy"),
        ("record_video", "record-video"),
        ("record_training", "record-training"),
        ("plots.all_plots", "all-plots"),
        ("plots.plot_train", "plot-train"),
        ("plots.plot_from_file", "plot-from-file"),
    ],
)
def test_flags(module: str, command: str, tmp_path: Path) -> None:
    text = theirs(module, "--help", folder=tmp_path)
    usage = text[text.index("options:") :]
    flags = {
        flag
        for line in re.findall(r"^  (-.*)", usage, re.MULTILINE)
        for flag in re.findall(r"(?<!\S)--?[a-zA-Z][-\w]*", line)
    }
    known = {
        part for item in fields(load_command(command)[0]) for flag in item.metadata["flags"] for part in flag.split("/")
    }
    assert flags - {"-h", "--help"} - OF_THE_SEARCH - known == set()


def test_files(place: Path) -> None:
    def kinds(folder: RunFolder) -> set[str]:
        files = [path.relative_to(folder.path) for path in folder.path.rglob("*") if path.is_file()]
        return {re.sub(r"\d+_steps", "N_steps", str(path)) for path in files}

    there, here = (kinds(folder) for folder in runs(place))
    # Here each checkpoint has the statistics of its own step; there are only those of the end.
    assert here - there == {"rl_model_vecnormalize_N_steps.pkl"}
    assert there - here == set()


def test_settings_and_arguments(place: Path) -> None:
    there, here = runs(place)
    assert there.read_yaml("config.yml") == here.read_yaml("config.yml")
    missing = set(there.read_yaml("args.yml")) - set(here.read_yaml("args.yml"))
    names = {flag.lstrip("-").replace("-", "_") for flag in OF_THE_SEARCH}
    assert missing - names == set()


def test_evaluations_and_episodes(place: Path) -> None:
    there, here = runs(place)
    with np.load(there.path / "evaluations.npz") as a, np.load(here.path / "evaluations.npz") as b:
        assert set(a.files) == set(b.files)
        for key in a.files:
            assert a[key].shape == b[key].shape
            assert a[key].dtype.kind == b[key].dtype.kind
        assert a["timesteps"].tolist() == b["timesteps"].tolist()
    for name in ("0.monitor.csv", "1.monitor.csv"):
        first, second = ((folder.path / name).read_text().splitlines() for folder in (there, here))
        assert first[1] == second[1], "columns"
        assert first[0].startswith('#{"t_start": ')
        assert second[0].startswith('#{"t_start": ')


def episodes(text: str) -> list[str]:
    """What was printed of episodes."""
    return re.findall(r"^(?:Episode (?:Reward|Length)|Mean|\d+ Episodes).*", text, re.MULTILINE)


@pytest.mark.parametrize("which", [[], ["--load-best"], ["--load-last-checkpoint"], ["--load-checkpoint", "400"]])
@pytest.mark.parametrize("logs", ["theirs", "ours"])
def test_each_plays_what_the_other_trained(place: Path, logs: str, which: list[str]) -> None:
    words = ["--algo", "ppo", "--env", "CartPole-v1", "-f", logs, "--no-render", "-n", "300", "--seed", "5", *which]
    there = episodes(theirs("enjoy", *words, folder=place))
    here = episodes(ours("enjoy", *words, folder=place))
    assert there
    if logs == "theirs" or not which:
        assert here == there, "the same episodes"
    else:  # with other statistics than ours: see test_files
        assert len(here) > 3


def test_each_continues_with_what_the_other_trained(place: Path) -> None:
    model = str(runs(place)[1].final_model)
    theirs("train", *TRAIN, "-f", "theirs_again", "-i", model, "--eval-freq", "-1", folder=place)
    model = str(runs(place)[0].final_model)
    ours("train", *TRAIN, "-f", "ours_again", "-i", model, "--eval-freq", "-1", folder=place)


def test_their_plots_of_our_folders(place: Path) -> None:
    words = ["-a", "ppo", "-e", "CartPole-v1", "-f", "ours", "theirs", "--no-million", "--no-display"]
    table = theirs("plots.all_plots", *words, folder=place)
    assert re.search(r"\|CartPole-v1 *\| *\d+ \+/-", table), table
    with np.load(runs(place)[1].path / "evaluations.npz") as evaluations:
        assert f"{evaluations['results'][-1].mean():.0f} +/-" in table


WRAPPERS: list[tuple[str, dict[str, Any]]] = [
    ("FrameSkip", {"skip": 3}),
    ("DelayedRewardWrapper", {"delay": 4}),
    ("HistoryWrapper", {"horizon": 3}),
    ("ActionSmoothingWrapper", {"smoothing_coef": 0.6}),
    ("TruncatedOnSuccessWrapper", {"reward_offset": -0.5}),
    ("MaskVelocityWrapper", {}),
]


@pytest.mark.parametrize(("name", "kwargs"), WRAPPERS)
def test_wrappers(tmp_path: Path, name: str, kwargs: dict[str, Any]) -> None:
    code = (
        "import sys, importlib, gymnasium\n"
        "wrapper = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])\n"
        "env = wrapper(gymnasium.make('Pendulum-v1'), **eval(sys.argv[3]))\n"
        "env.action_space.seed(0)\n"
        "print(env.observation_space, env.reset(seed=1)[0].tolist())\n"
        "for _ in range(60):\n"
        "    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())\n"
        "    print(observation.tolist(), float(reward), terminated, truncated)\n"
        "    if terminated or truncated:\n"
        "        env.reset()\n"
    )
    there = program([PYTHON, "-c", code, "rl_zoo3.wrappers", name, repr(kwargs)], tmp_path)
    assert program([sys.executable, "-c", code, "polyak.envs", name, repr(kwargs)], tmp_path) == there
