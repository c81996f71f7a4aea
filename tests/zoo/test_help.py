"""What the command line says of itself: help in panels, examples that work, and what a shell offers to complete."""

import re
import shlex
from dataclasses import fields
from typing import Any

import pytest

from polyak.zoo.cli import COMMANDS, build_app, main
from polyak.zoo.examples import EXAMPLES
from polyak.zoo.options import list_flags, spread_lists
from polyak.zoo.train import TrainOptions

NAMES = [*COMMANDS, "run"]


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    """The commands as click has them, by name."""
    from typer.main import get_command

    app: Any = get_command(build_app())
    found = dict(app.commands)
    return {name: found[name] if name in found else found["data"].commands[name.split()[1]] for name in NAMES}


def test_help_of_train_begins_with_what_everyone_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    flags = re.findall(r"^\W*(--[a-z][\w-]*)", shown, re.MULTILINE)
    assert flags[:4] == ["--algo", "--env", "--n-timesteps", "--seed"]
    titles = [title for title in TrainOptions.PANELS if title in shown]
    assert titles == list(TrainOptions.PANELS)
    assert sorted(titles, key=shown.index) == titles
    assert flags.index("--sampler") > flags.index("--wandb-tags")
    assert "polyak train --algo ppo --env CartPole-v1" in shown


@pytest.mark.parametrize("name", [name for name, (options, _) in COMMANDS.items() if hasattr(options, "PANELS")])
def test_every_option_has_its_panel(name: str) -> None:
    options = COMMANDS[name][0]
    placed = [field for names in options.PANELS.values() for field in names]
    assert len(placed) == len(set(placed))
    assert {item.name for item in fields(options)} <= set(placed)
    assert next(iter(options.PANELS)) == "Options"


def test_panels_name_options_that_there_are() -> None:
    there = {item.name for options, _ in COMMANDS.values() for item in fields(options)}
    for options, _ in COMMANDS.values():
        assert {field for names in getattr(options, "PANELS", {}).values() for field in names} <= there


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_understood(name: str, commands: dict[str, Any]) -> None:
    assert EXAMPLES.keys() == set(NAMES)
    flags = list_flags(*(options for options, _ in COMMANDS.values()))
    for example in EXAMPLES[name]:
        program, *words = shlex.split(example)
        assert program == "polyak"
        assert words[: len(name.split())] == name.split()
        words = words[len(name.split()) :]
        commands[name].make_context(name, words if name == "run" else spread_lists(words, flags))
        assert example in commands[name].epilog.split("\n\n")


def test_train_has_an_example_for_each_panel(commands: dict[str, Any]) -> None:
    flags = {part: item.name for item in fields(TrainOptions) for part in item.metadata["flags"]}
    panels = {field: title for title, names in TrainOptions.PANELS.items() for field in names}
    used = {panels[flags[word]] for example in EXAMPLES["train"] for word in example.split() if word in flags}
    assert used == set(TrainOptions.PANELS)


def test_the_folder_of_logs_has_one_name_everywhere() -> None:
    of_logs = {
        name: item.metadata["flags"]
        for name, (options, _) in COMMANDS.items()
        for item in fields(options)
        if "-f" in item.metadata["flags"]
    }
    assert {"train", "tune", "enjoy", "evaluate", "plot", "all-plots", "plot-train", "push-to-hub"} <= of_logs.keys()
    for name, flags in of_logs.items():
        assert flags[0] == "--log-folder", name


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("polyak train --algo recur", "recurrent_ppo"),
        ("polyak enjoy -a pp", "ppo"),
        ("polyak train --env CartPole-v", "CartPole-v1"),
        ("polyak plot -a qr", "qrdqn"),
        ("polyak eval", "evaluate"),
        ("polyak train --save-fr", "--save-freq"),
        ("polyak data col", "collect"),
    ],
)
def test_shells_complete(
    typed: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_POLYAK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert not stopped.value.code
    assert offered in capsys.readouterr().out.split()


def test_completion_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--install-completion" in capsys.readouterr().out


def test_the_project_of_trackers_is_our_own() -> None:
    assert TrainOptions().wandb_project_name == "polyak"
