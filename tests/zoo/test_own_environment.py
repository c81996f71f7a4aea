"""Environments of the user's own: a class in a file, a module in the current folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from polyak.zoo.own_code import find_env_file
from polyak.zoo.registry import find_env
from tests.zoo.test_cli import run

ENV = '''
import gymnasium as gym
import numpy as np

from walls import LENGTH


class Corridor(gym.Env):
    """Walk to the right end; info says where."""

    observation_space = gym.spaces.Box(0, LENGTH, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, start=0):
        self.start = start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.start
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.place = min(max(self.place + 2 * int(action) - 1, 0), LENGTH)
        self.t += 1
        return self._obs(), -1.0, self.place == LENGTH, self.t == 20, {}

    def _obs(self):
        return np.array([self.place], np.float32)


def half_way():
    return Corridor(start=LENGTH // 2)


class Broken(Corridor):
    def step(self, action):
        return self._obs(), self.no_such_thing, False, False, {}


class FourValues(Corridor):
    def step(self, action):
        return super().step(action)[:4]


class Wide(Corridor):
    action_space = gym.spaces.Box(-3, 3, (1,), np.float32)

    def step(self, action):
        return super().step(action[0] > 0)
'''
MODULE = """
import gymnasium as gym
from corridor import Corridor

gym.register("Hall-v0", entry_point="myenvs:Hall", max_episode_steps=15)


class Hall(Corridor):
    pass
"""
SMALL = ["-n", 64, "--eval-freq", -1, "-params", "n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with environments in it; what the test imports from there is forgotten afterwards."""
    (tmp_path / "corridor.py").write_text(ENV)
    (tmp_path / "walls.py").write_text("LENGTH = 6")
    (tmp_path / "myenvs.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    gymnasium.registry.pop("Hall-v0", None)


@pytest.mark.parametrize(
    ("vec_env", "named", "name"),
    [("subproc", "corridor.py:Corridor", "Corridor"), ("dummy", "myenvs:Hall-v0", "Hall-v0")],
)
def test_train_and_enjoy(home: Path, capsys: pytest.CaptureFixture[str], vec_env: str, named: str, name: str) -> None:
    assert run("train", "--env", named, "--vec-env", vec_env, *SMALL) == 0
    assert f"Checked {named}: it follows the Gymnasium API." in capsys.readouterr().out
    assert (home / "logs" / "ppo" / f"{name}_1" / f"{name}.zip").is_file()
    for again in (["--env", named], ["--env", name, "--trust"]):
        assert run("enjoy", *again, "-n", 60, "--no-render") == 0
        assert "Mean reward:" in capsys.readouterr().out
    assert run("plot", "--env", named, "-o", "x.png") == 0
    assert run("list", "--env", named) == 0


def test_a_function_makes_the_environment_with_the_given_arguments(home: Path) -> None:
    assert run("train", "--env", "corridor.py:half_way", *SMALL) == 0
    assert run("train", "--env", "corridor.py:Corridor", "--env-kwargs", "start:2", *SMALL) == 0
    assert find_env("corridor.py:Corridor").spec.make(start=2).reset()[0].tolist() == [2]
    limited = find_env("corridor.py:half_way").spec.make(max_episode_steps=1)
    assert limited.reset()[0].tolist() == [3]
    assert limited.step(0)[3], "cut after one step"


def test_packages_that_register_reach_workers_and_are_named_again_or_trusted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = ["--gym-packages", "myenvs"]
    assert run("train", "--env", "Hall-v0", *packages, "--vec-env", "subproc", *SMALL) == 0
    enjoy = ["enjoy", "--env", "Hall-v0", "-n", 30, "--no-render"]
    assert run(*enjoy, *packages) == run(*enjoy, "--trust") == 0
    assert run(*enjoy) == 2
    assert "args.yml: gym_packages names 'myenvs', code that is not run unasked" in capsys.readouterr().err


def test_advice_of_the_checker_is_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--env", "corridor.py:Wide", *SMALL) == 0
    assert "  advice: The action space is Box(-3.0, 3.0, (1,), float32), but" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("corridor.py", "--env 'corridor.py' names a file only. Add the class or function that makes it"),
        ("nowhere.py:X", "there is no file"),
        ("corridor.py:Coridor", "has no class or function 'Coridor'. Did you mean 'Corridor'? It defines: Corridor"),
        (
            "typo.py:X",
            "--env 'typo.py:X': the file cannot be loaded: NameError: name 'undefined' is not defined (typo.py, l",
        ),
        ("corridor.py:FourValues", "cannot be trained in yet: `step()` must return a tuple of 5"),
        ("corridor.py:Broken", "AttributeError: 'Broken' object has no attribute 'no_such_thing' (corridor.py, line"),
        ("broken_module:X-v0", "The module 'broken_module' cannot be imported: ZeroDivisionError"),
        ("wants:X-v0", "The module 'wants' imports another: No module named 'no_such_package'"),
    ],
)
def test_mistakes_are_reported_in_a_line_and_nothing_is_left(
    home: Path, capsys: pytest.CaptureFixture[str], named: str, message: str
) -> None:
    (home / "typo.py").write_text("a = 1\nb = undefined\n")
    (home / "broken_module.py").write_text("1 / 0\n")
    (home / "wants.py").write_text("import no_such_package\n")
    assert run("train", "--env", named, *SMALL) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (home / "logs").exists()


def test_a_file_called_like_an_installed_module_is_itself(home: Path) -> None:
    (home / "random.py").write_text(ENV)
    assert find_env_file("random.py:Corridor").maker.__module__.startswith("random_")
    import random

    assert "site-packages" not in (random.__file__ or "")
    assert hasattr(random, "randint")


# -- run folders are data ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file in the logs", "module in the logs", "file elsewhere", "wrapper in the logs"])
def test_code_of_a_run_folder_is_not_run(
    home: Path, capsys: pytest.CaptureFixture[str], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A run folder from elsewhere names code of its author."""
    assert run("train", "--env", "corridor.py:Corridor", *SMALL) == 0
    folder = home / "logs" / "ppo" / "Corridor_1"
    marker = home / "marker"
    evil = f"open({str(marker)!r}, 'w')\n"
    (folder / "evil.py").write_text(evil)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "evil.py"
    elsewhere.write_text(evil)
    settings = folder / "Corridor"
    named = {
        "file in the logs": "logs/ppo/Corridor_1/evil.py:Corridor",
        "module in the logs": "logs.ppo.Corridor_1.evil:Corridor",
        "file elsewhere": f"{elsewhere}:Corridor",
    }
    if kind in named:
        text = (settings / "args.yml").read_text().replace("corridor.py:Corridor", named[kind])
        (settings / "args.yml").write_text(text)
        assert named[kind] in text
    else:
        with (settings / "config.yml").open("a") as file:
            file.write("env_wrapper: logs.ppo.Corridor_1.evil.Wrapper\n")
    capsys.readouterr()
    name = "Corridor" if kind in named else "corridor.py:Corridor"
    assert run("enjoy", "--env", name, "-n", 5, "--no-render") == 2
    message = capsys.readouterr().err
    assert "code that is not run unasked" in message
    assert str(Path("logs/ppo/Corridor_1/Corridor") / ("args.yml" if kind in named else "config.yml")) in message
    assert not marker.exists()


def test_code_under_the_current_folder_is_run_only_if_the_user_names_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive of logs may hold code beside them: that it lies under the current folder says nothing."""
    assert run("train", "--env", "corridor.py:Corridor", *SMALL) == 0
    assert run("enjoy", "--env", "Corridor", "-n", 5, "--no-render") == 2
    assert "env names 'corridor.py:Corridor', code that is not run unasked" in capsys.readouterr().err
