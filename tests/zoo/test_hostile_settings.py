"""Settings, run folders and agents of the Hub that are made to do harm: all are refused, and nothing of them is run."""

import json
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import read_yaml
from polyak.zoo.registry import find_algorithm
from polyak.zoo.settings import interpret
from tests.warm import python
from tests.zoo.hostile_settings import ARGUMENTS, COMMAND_LINES, OF_BUILDING, OF_ENVIRONMENTS, OF_MODELS, OF_TRAINING
from tests.zoo.hub_server import Hub

pytest.importorskip("resource")

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 5
MOST_BYTES = 512 * 2**20
BESIDE = "import pathlib\npathlib.Path({canary!r}).write_text('imported')\n"
HARMLESS = "n_timesteps: 1\n"


class Place:
    """A current folder with code of others in it, and a file that must never come to be."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.canary = folder / "here", folder / "canary"
        self.before: set[Path] = set()
        self.folder.mkdir()
        for module in ("beside.py", "minigrid.py", "rl_zoo3/__init__.py", "rl_zoo3/beside.py"):
            path = self.folder / module
            path.parent.mkdir(exist_ok=True)
            path.write_text(BESIDE.format(canary=str(self.canary)))

    def text(self, hostile: str) -> str:
        """A hostile text whose harm would be seen."""
        return hostile.replace("TOUCH", f"touch {self.canary}").replace("CANARY", str(self.canary))

    def settings(self, name: str, hostile: str) -> str:
        """A file of settings with a hostile block; returns its path."""
        text = self.text(hostile)
        if not text.startswith(("!!", "? ", "~", "a: !!")):
            text = "CartPole-v1:\n" + "".join(f"  {line}\n" for line in text.splitlines())
        (self.folder / name).write_text(text)
        return name

    def run_folder(self, logs: str, config: str = HARMLESS, arguments: str = "") -> str:
        """A run that was never trained, with these files; returns its log folder."""
        settings = self.folder / logs / "ppo" / "CartPole-v1_1" / "CartPole-v1"
        settings.mkdir(parents=True)
        shutil.copy(self.folder / "beside.py", settings.parent / "evil.py")
        (settings.parent / "CartPole-v1.zip").write_bytes(b"no model")
        (settings / "config.yml").write_text(self.text(config))
        (settings / "args.yml").write_text(self.text(arguments))
        return logs

    def run(self, commands: list[list[str]]) -> list[dict[str, Any]]:
        """What each command did; all run in one process."""
        self.before = self.files()
        tasks, results = self.folder.with_name("tasks.json"), self.folder.with_name("results.json")
        tasks.write_text(json.dumps(commands))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"}
        words = ["-m", "tests.zoo.hostile_program", tasks, results, self.canary]
        python(words, self.folder, environment, check=True)
        assert not self.canary.exists(), self.canary.read_text()
        found: list[dict[str, Any]] = json.loads(results.read_text())
        return found

    def new_files(self) -> set[Path]:
        """What has come to be in the current folder since the commands began."""
        return self.files() - self.before

    def files(self) -> set[Path]:
        """All there is in the current folder."""
        return {path for path in self.folder.rglob("*") if "__pycache__" not in path.parts}


def check(result: dict[str, Any], *parts: str) -> str:
    """Say what is wrong with how a command ended; empty if it refused in one line that has `parts`."""
    error = result["err"]
    wrong = [f"the message lacks {part!r}" for part in parts if part not in error]
    if result["status"] != 2:
        wrong.append(f"exit status {result['status']}")
    if "Traceback" in error or len(error) > 3_000:
        wrong.append("a traceback, or a long message")
    return "; ".join([*wrong, *costs(result)])


def costs(result: dict[str, Any]) -> list[str]:
    """What took too long, or too much memory."""
    wrong = []
    if result["seconds"] > MOST_SECONDS:
        wrong.append(f"{result['seconds']:.1f} seconds")
    if result["grown"] > MOST_BYTES:
        wrong.append(f"{result['grown'] / 2**20:.0f} MB")
    return wrong


def refused(place: Place, commands: list[list[str]], cases: dict[str, str]) -> list[dict[str, Any]]:
    """Run the commands of `cases`, each of which must be refused with the part of a message that its case has."""
    results = place.run(commands)
    complaints = [
        f"{name}: {wrong}\n    {result['err'][-600:]}"
        for (name, part), result in zip(cases.items(), results, strict=True)
        if (wrong := check(result, place.text(part)))
    ]
    if complaints:
        pytest.fail("\n".join(complaints))
    assert not place.new_files()
    return results


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


BLOCKS = OF_ENVIRONMENTS | OF_TRAINING


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_refused(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule itself, which all commands share; what they make of it is below."""
    monkeypatch.chdir(place.folder)
    monkeypatch.syspath_prepend(str(place.folder))
    hostile, part = BLOCKS[name]
    with pytest.raises(ZooError, match=re.escape(place.text(part))) as refusal:
        content = read_yaml(place.text(hostile), "the.yml")
        interpret(find_algorithm("ppo"), "ppo", content, "the.yml").find_classes()
    assert "the.yml" in str(refusal.value)
    assert len(str(refusal.value)) < 3_000
    assert not place.canary.exists()
    assert "beside" not in sys.modules


@pytest.mark.slow
def test_train(place: Place) -> None:
    cases = OF_ENVIRONMENTS | OF_BUILDING | OF_TRAINING | OF_MODELS
    files = [place.settings(f"{number}.yml", hostile) for number, (hostile, _) in enumerate(cases.values())]
    how = ["-n", "1", "--eval-freq", "-1", "--device", "cpu", "--verbose", "0"]
    commands = [["train", "--conf-file", file, *how] for file in files]
    results = refused(place, commands, {name: part for name, (_, part) in cases.items()})
    unnamed = [name for name, file, result in zip(cases, files, results, strict=True) if file not in result["err"]]
    # What the environment and the algorithm refuse is named as theirs.
    assert set(unnamed) <= {"an argument that is not there", "an argument twice", "noise without end"}, unnamed


@pytest.mark.slow
@pytest.mark.parametrize("command", ["enjoy", "record-video", "record-training"])
def test_run_folders(place: Place, command: str) -> None:
    configs = {f"config: {name}": case for name, case in (OF_ENVIRONMENTS | OF_BUILDING).items()}
    logs = [place.run_folder(f"logs-{number}", hostile) for number, (hostile, _) in enumerate(configs.values())]
    logs += [place.run_folder(f"args-{n}", arguments=hostile) for n, (hostile, _) in enumerate(ARGUMENTS.values())]
    more = ["--no-render"] if command == "enjoy" else []
    if command == "record-training":
        for folder in logs:
            run = place.folder / folder / "ppo" / "CartPole-v1_1"
            shutil.copy(run / "CartPole-v1.zip", run / "rl_model_10_steps.zip")
    commands = [[command, "-f", folder, "-n", "1", "--device", "cpu", *more] for folder in logs]
    refused(place, commands, {name: part for name, (_, part) in {**configs, **ARGUMENTS}.items()})


@pytest.mark.slow
def test_agents_of_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    blocks = OF_ENVIRONMENTS | OF_TRAINING
    cases = {f"config: {name}": ("config.yml", *case) for name, case in blocks.items()}
    cases |= {f"args: {name}": ("args.yml", *case) for name, case in ARGUMENTS.items()}
    cases |= {
        "kwargs: a file": ("env_kwargs.yml", "xml_file: /etc/passwd", "xml_file='/etc/passwd'"),
        "kwargs: code": ("env_kwargs.yml", "kind: os.system", "kind='os.system' is neither a plain word"),
        "kwargs: itself": ("env_kwargs.yml", "a: &a [*a]", "it contains itself"),
        "kwargs: a list": ("env_kwargs.yml", "[1]", "must map names to values"),
    }
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(place.folder.with_name("hub")))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        for number, (file, hostile, _) in enumerate(cases.values()):
            files = {"ppo-CartPole-v1.zip": b"no model", file: place.text(hostile).encode()}
            server.repositories[f"me/{number}"] = files
        (place.folder / "logs").mkdir()
        commands = [["load-from-hub", "-orga", "me", "-name", str(n), "-f", "logs"] for n in range(len(cases))]
        results = refused(place, commands, {name: part for name, (_, _, part) in cases.items()})
        server.shutdown()
    for number, (result, (file, _, _)) in enumerate(zip(results, cases.values(), strict=True)):
        assert f"me/{number}/{file}" in result["err"]


@pytest.mark.slow
def test_plots_and_reports_say_what_they_cannot_read(place: Place) -> None:
    """They show the rest, so they end well; what cannot be read is named, and what is read is never run."""
    cases = {name: case for name, case in OF_ENVIRONMENTS.items() if "Cannot read" in case[1] or "itself" in case[1]}
    cases |= {name: OF_ENVIRONMENTS[name] for name in ("a shell", "a chain of builtins", "aliases that multiply")}
    logs = [place.run_folder(f"logs-{number}", hostile) for number, (hostile, _) in enumerate(cases.values())]
    pages = [f"../page-{number}.html" for number in range(len(logs))]
    commands = [["report", folder, "-o", page] for folder, page in zip(logs, pages, strict=True)]
    commands += [["plot", "-a", "her", "-e", "CartPole-v1", "-f", folder, "-o", "../x.png"] for folder in logs]
    results = place.run(commands)
    assert not [wrong for result in results if (wrong := costs(result))]
    assert "Traceback" not in "".join(result["err"] for result in results)
    for name, page, result in zip(cases, pages, results[: len(logs)], strict=True):
        assert result["status"] in (0, None), (name, result)
        if "Cannot read" in cases[name][1] or "itself" in cases[name][1]:
            assert "config.yml" in (place.folder / page).read_text(), name


def test_sizes_on_the_command_line(place: Place) -> None:
    refused(place, [command.split() for command in COMMAND_LINES], COMMAND_LINES)
