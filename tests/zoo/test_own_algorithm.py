"""Algorithms of the user's own, ``--algo my_file.py:MyAlgorithm``: trained, played, plotted and tuned like polyak's."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from polyak import PPO, algorithms
from polyak.zoo.errors import ZooError
from polyak.zoo.registry import find_algorithm, parameter_names, registered_name
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.settings import Settings, load_settings
from tests.pairs import one_of_each
from tests.zoo.test_cli import run

CODE = '''
import pathlib

import polyak
from polyak.algorithm import Algorithm

pathlib.Path("was_run").touch()


class Halved(polyak.PPO):
    """PPO with rewards that count half."""

    def __init__(self, *args, share=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.share = share


class Few(polyak.PPO):
    def __init__(self, policy, env, n_steps=16, seed=None, device="cpu", verbose=0, tensorboard_log=None,
                 _init_setup_model=True):
        super().__init__(policy, env, n_steps=n_steps, batch_size=16, n_epochs=1, seed=seed, device=device,
                         _init_setup_model=_init_setup_model)


class Bare(Algorithm):
    pass


class PPO(polyak.PPO):
    pass


def function():
    pass
'''
SMALL = ["--seed", 1, "-n", 64, "--eval-freq", -1, "-params", "n_steps:16", "batch_size:16", "n_epochs:1", "n_envs:2"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with algorithms in it; what the test imports from there is forgotten afterwards."""
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("raise KeyError('here')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("text", one_of_each(["mine.py:Halved", "mine:Halved"], "mine:Halved"))
def test_train_enjoy_and_plot(text: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--algo", text, *SMALL, "share=0.25") == 0
    assert "HALVED on CartPole-v1" in capsys.readouterr().out
    folder = RunFolder.find(home / "logs", text, "CartPole-v1")
    assert folder.path == home / "logs" / "halved" / "CartPole-v1_1"
    assert folder.read_yaml("args.yml")["algo"] == text
    assert folder.read_yaml("config.yml")["share"] == 0.25
    assert run("enjoy", "-a", text, "-n", 20, "--no-render") == 0
    assert run("train", "--algo", text, "-i", folder.final_model, *SMALL) == 0
    assert run("plot", "-a", text, "-e", "CartPole-v1", "-o", "x.png") == 0
    assert run("plot", "-a", "halved", "-e", "CartPole-v1", "-o", "y.png") == 0
    assert run("enjoy", "-a", "Halv", "-n", 20, "--no-render") == 2
    assert "Unknown algorithm --algo 'Halv'" in capsys.readouterr().err


def test_what_a_run_folder_names_is_not_imported_unasked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--algo", "mine.py:Halved", *SMALL) == 0
    for name in [name for name in sys.modules if name.startswith("mine_")]:
        del sys.modules[name]
    (home / "was_run").unlink()
    assert run("enjoy", "-a", "halved", "-n", 20, "--no-render") == 2
    error = capsys.readouterr().err
    assert "algo names 'mine.py:Halved', code that is not run unasked" in error
    assert "Give it yourself on the command line (--env, --algo," in error
    assert not (home / "was_run").exists()
    assert run("enjoy", "-a", "halved", "-n", 20, "--no-render", "--trust") == 0
    assert (home / "was_run").exists()


def test_settings_are_those_of_the_algorithm_it_derives_from(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    halved = find_algorithm("mine.py:Halved")
    assert registered_name(halved) == registered_name(PPO) == "ppo"
    assert {"share", "n_steps", "policy"} <= set(parameter_names(halved))
    assert parameter_names(PPO)[0] == "policy"
    of_ppo = load_settings(PPO, "ppo", "CartPole-v1")
    settings = load_settings(halved, "mine.py:Halved", "CartPole-v1", overrides={"share": 0.1})
    assert settings.arguments == {**of_ppo.arguments, "share": 0.1}
    few = load_settings(find_algorithm("mine.py:Few"), "mine.py:Few", "CartPole-v1")
    assert set(few.arguments) == {"n_steps"}
    assert "Few does not take batch_size" in capsys.readouterr().err
    with pytest.raises(ZooError, match="Unknown setting 'batch_size' for mine.py:Few"):
        load_settings(find_algorithm("mine.py:Few"), "mine.py:Few", "CartPole-v1", overrides={"batch_size": 3})
    bare = find_algorithm("mine.py:Bare")
    assert registered_name(bare) is None
    assert load_settings(bare, "mine.py:Bare", "CartPole-v1").source == "the defaults of Bare [default]"
    assert run("list", "--algo", "mine.py:Halved") == 0
    assert "CartPole-v1:" in capsys.readouterr().out


CARDS = """
import polyak
from polyak.algorithm_info import Card, Search, tune

BLOCKS = {"default": {"n_steps": 8, "n_timesteps": 64}, "CartPole-v1": {"n_steps": 16, "batch_size": 16}}


class InCode(polyak.PPO):
    card = Card("x", "y", settings=BLOCKS, search=Search(polyak.PPO.card.search, tune.rate(1e-3, 2e-3)))


class InFile(polyak.PPO):
    card = Card("x", "y", settings="tuned.yml")


class Lost(polyak.PPO):
    card = Card("x", "y", settings="lost.yml")


class Wrong(polyak.PPO):
    card = Card("x", "y", settings={"default": 3})


class Unknown(polyak.PPO):
    card = Card("x", "y", settings={"default": {"n_stepz": 3}})


class Heir(InCode):
    pass
"""


def test_settings_are_those_of_its_card(home: Path) -> None:
    (home / "cards.py").write_text(CARDS)
    (home / "tuned.yml").write_text("default: {n_steps: 32, batch_size: 8}")

    def settings_of(name: str, env: str = "CartPole-v1") -> Settings:
        return load_settings(find_algorithm(f"cards.py:{name}"), f"cards.py:{name}", env)

    assert settings_of("InCode").arguments == settings_of("Heir").arguments == {"n_steps": 16, "batch_size": 16}
    assert settings_of("InCode", "Acrobot-v1").n_timesteps == 64
    assert settings_of("InCode").source == "tuned settings of InCode [CartPole-v1]"
    assert settings_of("InFile").arguments == {"n_steps": 32, "batch_size": 8}
    with pytest.raises(ZooError, match=r"The card of Lost names settings='lost.yml', but there is no file .*lost.yml"):
        settings_of("Lost")
    with pytest.raises(ZooError, match="tuned settings of Wrong must map environment ids to blocks"):
        settings_of("Wrong")
    with pytest.raises(ZooError, match="Unknown setting 'n_stepz' for cards.py:Unknown .* Did you mean 'n_steps'"):
        settings_of("Unknown")


def test_the_space_is_that_of_its_card(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    (home / "cards.py").write_text(CARDS)
    (home / "tuned.yml").write_text("default: {n_steps: 32, batch_size: 8}")
    words = ["-n", 64, "--n-trials", 1, "--n-evaluations", 1, "--eval-episodes", 1, "--no-optim-plots"]
    assert run("tune", "--algo", "cards.py:Heir", *words, "-params", "n_steps:16", "batch_size:16", "n_envs:1") == 0
    [report] = (home / "logs" / "heir").glob("report_CartPole-v1_*.yml")
    rate = yaml.safe_load(report.read_text())["CartPole-v1"]["learning_rate"]
    assert 1e-3 <= float(str(rate).removeprefix("lin_")) <= 2e-3
    capsys.readouterr()
    assert run("tune", "--algo", "cards.py:InFile", *words) == 2
    assert "There is no space for InFile to search. Give one: --space" in capsys.readouterr().err


def test_tuning(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    words = ["-n", 64, "--n-trials", 1, "--n-evaluations", 1, "--eval-episodes", 1, "--no-optim-plots"]
    assert run("tune", "--algo", "mine.py:Halved", *words, "-params", "n_steps:16", "batch_size:16", "n_envs:1") == 0
    assert "polyak train --algo mine.py:Halved" in capsys.readouterr().out
    assert list((home / "logs" / "halved").glob("report_CartPole-v1_*.yml"))
    assert run("tune", "--algo", "mine.py:Bare", *words) == 2
    assert "Give one: --space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine.py", "names a file only. Add the class in it: mine.py:NAME"),
        ("none.py:X", "there is no file"),
        ("mine.py:Halve", "the file has no class or function 'Halve'. Did you mean 'Halved'"),
        ("mine.py:function", "is not a class of algorithms"),
        ("mine.py:PPO", "is called like 'ppo', which is another algorithm"),
        ("broken.py:X", "KeyError: 'here' (broken.py, line 1)"),
        ("no_such_module:X", "Cannot import the package 'no_such_module' that should hold an algorithm"),
        ("mine:Halve", "the module has no class 'Halve'. Did you mean 'Halved'"),
    ],
)
def test_mistakes(text: str, message: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--algo", text) == 2
    error = capsys.readouterr().err
    assert message in error
    assert f"--algo {text!r}" in error or "no_such_module" in error
    assert not (home / "logs").exists()


def test_a_registered_name_is_one_for_every_command(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "_REGISTERED", {})
    with (home / "mine.py").open("a") as file:
        file.write("\n\npolyak.register(Halved)\n")
    assert run("train", "--algo", "mine.py:Halved", *SMALL) == 0  # the file registers what it defines
    assert algorithms.registered_as(algorithms.get("halved")) == "halved"
    assert run("train", "--algo", "halved", *SMALL, "share:0.1") == 0
    assert RunFolder.find(home / "logs", "halved", "CartPole-v1").read_yaml("config.yml")["share"] == 0.1
    assert run("enjoy", "-a", "halved", "-n", 20, "--no-render") == 0
    assert run("plot", "-a", "halved", "-e", "CartPole-v1", "-o", "x.png") == 0
    capsys.readouterr()
    assert run("list") == 0
    assert re.search(r"halved +PPO with rewards that count half\.", capsys.readouterr().out)


def test_one_that_a_broken_package_offers_says_so(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("broken", "no_such_package:Broken", algorithms.GROUP)
    monkeypatch.setattr(algorithms, "_offered", lambda: {"broken": point})
    assert run("train", "--algo", "broken") == 2
    assert "--algo 'broken': algorithm 'broken' is offered by an installed package as" in capsys.readouterr().err
    assert run("list") == 0
    assert "No module named 'no_such_package'. Repair or uninstall that package." in capsys.readouterr().out
