"""What the command line says of itself: help in panels, examples that work, and what a shell offers to complete."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from polyak.zoo.cli import COMMANDS, HELP_ALL, build_app, load_command, main
from polyak.zoo.examples import EXAMPLES
from polyak.zoo.options import list_flags, spread_lists

NAMES = [*COMMANDS, "run"]
OPTIONS = {name: load_command(name)[0] for name in COMMANDS}


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    """The commands as click has them, by name."""
    from typer.main import get_command

    app: Any = get_command(build_app())
    found = dict(app.commands)
    return {name: found[name] if name in found else found["data"].commands[name.split()[1]] for name in NAMES}


def helped(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """Return what help prints, and the flags in it."""
    with pytest.raises(SystemExit):
        main(words)
    shown = capsys.readouterr().out
    return shown, re.findall(r"^\W*(--[a-z][\w-]*)", shown, re.MULTILINE)


@pytest.mark.parametrize("name", [name for name, options in OPTIONS.items() if hasattr(options, "PANELS")])
def test_help_fits_on_a_screen_and_says_how_to_see_the_rest(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown, flags = helped([*name.split(), "--help"], capsys)
    assert shown.count("\n") <= 40
    assert f"polyak {name} {HELP_ALL}" in shown
    everything, all_flags = helped([*name.split(), HELP_ALL], capsys)
    assert len(all_flags) > len(flags)
    assert set(flags) - {"--help"} <= set(all_flags)
    assert set(OPTIONS[name].PANELS) - {"Arguments"} <= set(re.findall(r"─ ([\w ,]+) ─", everything))


@pytest.mark.parametrize("name", [name for name, options in OPTIONS.items() if hasattr(options, "PANELS")])
def test_every_option_has_its_panel(name: str) -> None:
    options = OPTIONS[name]
    placed = [field for names in options.PANELS.values() for field in names]
    assert len(placed) == len(set(placed))
    assert {item.name for item in fields(options)} <= set(placed)
    assert next(iter(options.PANELS)) == "Options"


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_understood(name: str, commands: dict[str, Any]) -> None:
    assert EXAMPLES.keys() == set(NAMES)
    flags = list_flags(*OPTIONS.values())
    for example in EXAMPLES[name]:
        program, *words = shlex.split(example)
        assert program == "polyak"
        assert words[: len(name.split())] == name.split()
        words = words[len(name.split()) :]
        commands[name].make_context(name, words if name == "run" else spread_lists(words, flags))
        assert example in commands[name].epilog.split("\n\n")


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


def test_help_lists_every_command_with_its_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = [*helped(["--help"], capsys)[0].splitlines(), *helped(["data", "-h"], capsys)[0].splitlines()]
    for name, options in OPTIONS.items():
        (line,) = (line for line in shown if re.match(rf"\W+{name.rpartition(' ')[2]} ", line))
        assert str(options.__doc__).split("\n")[0][:60] in line


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Words -> the exit status of a command and what it said, of all in one process that never imports torch."""
    program = """
import contextlib, io, json, sys
from polyak.zoo.cli import main
ends = {}
for words in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main(words.split())
        except SystemExit as end:
            ends[words] = [end.code or 0, said.getvalue()]
    assert "torch" not in sys.modules, f"{words}: PyTorch was imported"
print(json.dumps(ends))
"""
    command = [sys.executable, "-c", program, *(words for words, _ in QUICK)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("empty"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


QUICK = [
    ("--help", ""),
    ("train --help", ""),
    (f"train {HELP_ALL}", ""),
    ("trian", "There is no command 'trian'. Did you mean 'train'?"),
    ("plto", "There is no command 'plto'. Did you mean 'plot'"),
    ("data shw", "There is no command 'data shw'. Did you mean 'data show'"),
    ("train --n-timestep 5", "--n-timesteps"),
    ("train --algo sacc", "Unknown algorithm --algo 'sacc'. Did you mean 'sac' or 'sac_v'?"),
    ("train --env CartPol-v1", "Did you mean 'CartPole-v1', 'CartPole-v0' or 'phys2d/CartPole-v1'?"),
    ("tune --env CartPol-v1", "Did you mean 'CartPole-v1', "),
    ("tune --sampler tep", "--sampler must be one of"),
    ("enjoy --algo sacc", "Did you mean 'sac' or 'sac_v'?"),
    ("evaluate --env CartPol-v1", "No run at all of ppo on CartPol-v1"),
    ("export --algo sacc", "Did you mean 'sac' or 'sac_v'?"),
    ("record-video --algo sacc", "Did you mean 'sac' or 'sac_v'?"),
    ("load-from-hub --algo sacc", "Did you mean 'sac' or 'sac_v'?"),
    ("list --env CartPol-v1", "Did you mean 'CartPole-v1', "),
    ("data collect --env CartPol-v1 --out a.npz", "Did you mean 'CartPole-v1', "),
    ("plot --algo sac", "There are no runs under logs"),
]


@pytest.mark.parametrize(("words", "said"), QUICK)
def test_help_and_mistakes_in_names_do_not_wait_for_pytorch(
    words: str, said: str, ends: dict[str, tuple[int, str]]
) -> None:
    code, errors = ends[words]
    assert code == (2 if said else 0), errors
    assert said in errors
    assert "Traceback" not in errors
