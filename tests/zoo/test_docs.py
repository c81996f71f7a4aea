"""Code in the README and the documentation runs, names what exists, and every page can be reached."""

import ast
import functools
import importlib
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import polyak
from polyak import PPO
from polyak.zoo.cli import ALIASES, GROUPS, HELP_ALL, load_command
from tests.warm import python

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "llms.txt", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[str]:
    """Return the Python code of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_snippets_name_what_exists() -> None:
    nodes = [(page, node) for page in PAGES for block in blocks(page) for node in ast.walk(ast.parse(block))]
    imports = [(page, node) for page, node in nodes if isinstance(node, ast.ImportFrom)]
    assert len(imports) > 200
    for page, node in imports:
        module = importlib.import_module(str(node.module))
        missing = [name.name for name in node.names if not hasattr(module, name.name)]
        assert not missing, f"{page.name}: {node.module} has no {missing}"
    for name in {name.name for _, node in nodes if isinstance(node, ast.Import) for name in node.names}:
        importlib.import_module(name)


def test_tables_of_names_say_what_exists() -> None:
    """In the last column of the tables of ``from_*.md``, classes and functions of polyak and their arguments."""
    known = 0
    for page in sorted(DOCS.glob("from_*.md")):
        for row in re.findall(r"^\|.*\| (.+?) \|$", page.read_text(encoding="utf-8"), re.MULTILINE):
            for code in re.findall(r"`([^`]+)`", row):
                try:
                    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
                except SyntaxError:  # a command, or an argument alone
                    continue
                for call in calls:
                    if (made := getattr(polyak, ast.unparse(call.func), None)) is not None:
                        known += 1
                        parameters = inspect.signature(made).parameters
                        open_ended = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
                        unknown = {word.arg for word in call.keywords} - parameters.keys() - {None}
                        assert open_ended or not unknown, f"{page.name}: {ast.unparse(call)}"
    assert known > 10


def shortened(code: str) -> str:
    """Code with fewer steps of training, and fewer episodes of evaluation."""
    short = re.sub(r"(learn\((?:total_timesteps=)?)[\d_]+", r"\g<1>110", code)  # off-policy: starts at 100
    short = re.sub(r"(eval_freq=|save_freq=)[\d_]+", r"\g<1>100", short)
    return re.sub(r"(n_(?:eval_)?episodes=)\d+", r"\g<1>2", short)


def in_short(init: Callable[..., None]) -> Callable[..., None]:
    """PPO's constructor, with short rollouts and one epoch where a program says nothing of them."""

    @functools.wraps(init)
    def made(self: Any, *args: Any, **options: Any) -> None:
        if len(args) < 4 and not {"n_steps", "batch_size", "n_epochs"} & options.keys():
            options |= {"n_steps": 128, "n_epochs": 1}
        init(self, *args, **options)

    return made


LONG = {
    *("course_arm", "course_lander", "course_tables", "course_zoo", "llms", "offline", "model_based", "scale"),
    *("several_machines", "offline_evaluation", "callbacks", "imitation", "games", "datasets", "custom_environment"),
    *("from_corl", "from_d3rlpy", "from_imitation", "decision_transformer", "awac", "bc", "bcq", "cql"),
    *("discrete_cql", "edac", "fqe", "iql", "marwil", "pets", "rebrac", "recurrent_ppo", "redq", "td3_bc"),
    *("deployment", "export", "saving"),
}
"""Pages whose snippets train for long, or start processes."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.slow if page.stem in LONG else ())
        for page in PAGES
        if blocks(page)
    ],
)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page, one after the other in one folder; those that start processes run as scripts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("polyak.algorithms._REGISTERED", {})  # what a page registers, other tests do not know
    monkeypatch.setattr(PPO, "__init__", in_short(PPO.__init__))
    program = ModuleType("__main__")  # loading looks for classes of the program there
    monkeypatch.setitem(sys.modules, "__main__", program)
    for number, block in enumerate(blocks(page)):
        short = shortened(block)
        if "make_atari_env" in short:
            pytest.importorskip("ale_py")
        if "SubprocVecEnv" in short:
            run_as_script(short, tmp_path / f"snippet_{number}.py")
        else:
            exec(compile(short, f"{page.name}, snippet {number}", "exec"), vars(program))


COMMAND_LINES = sorted(
    {
        line
        for page in PAGES
        for block in re.findall(r"```(?:bash|sh|console)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for line in re.findall(r"^(?:\$ )?(polyak [\w-].*)", block.replace("\\\n", " "), re.MULTILINE)
    }
)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_have_the_flags_that_pages_show(line: str) -> None:
    _, command, *words = shlex.split(line, comments=True)
    if command == "run" or command.startswith("-"):
        return
    command = "plot" if command.replace("_", "-") in ALIASES else command
    if command in GROUPS:
        command = f"{command} {words.pop(0)}"
    options_class, _ = load_command(command.replace("_", "-"))
    known = {part for item in fields(options_class) for flag in item.metadata["flags"] for part in flag.split("/")}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert given <= known | {"-h", "--help", HELP_ALL}


def run_as_script(code: str, path: Path) -> None:
    """Run `code` as ``python snippet.py`` does: workers import the file."""
    path.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    python([path.name], path.parent, environment, check=True)


def test_links_between_pages_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#:]*\.(?:md|ipynb|png|gif)|)(?:#([\w-]+))?\)")
    found = [(page, *ends) for page in PAGES for ends in link.findall(page.read_text(encoding="utf-8"))]
    assert len(found) > 100
    for page, target, anchor in found:
        linked = (page.parent / target) if target else page
        assert linked.is_file(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as links write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
