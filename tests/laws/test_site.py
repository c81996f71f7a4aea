"""The site builds without a warning, its links lead somewhere, and what is made of other files is up to date."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from tests.laws.floors import PACKAGE
from tests.laws.test_package import public_modules
from tests.zoo.test_docs import LONG, shortened

ROOT = PACKAGE.parent
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_site_builds_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    """Warnings of mkdocs are errors."""
    for needed in ("mkdocs", "material", "mkdocstrings", "griffe"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install 'polyak[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    missing = []
    for page in tmp_path.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#:?]+)(?:#[^"]*)?"', page.read_text("utf-8")):
            linked = (tmp_path / target.lstrip("/")) if target.startswith("/") else (page.parent / target)
            if page.name != "404.html" and not linked.exists():
                missing.append(f"{page.relative_to(tmp_path)}: {target}")
    assert not missing


# -- what is made of other files ---------------------------------------------------------------------------------------


def loaded(name: str) -> ModuleType:
    """A program of ``docs/``, which finds those beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("program", ["from_cards", "from_results", "notebooks", "llms"])
def test_what_is_generated_is_up_to_date(program: str) -> None:
    """Its code is that of pages, which :mod:`tests.zoo.test_docs` runs."""
    for path, text in loaded(program).files().items():
        assert path.read_text("utf-8") == text, f"{path.name} is out of date: run python docs/{program}.py"


def test_check_writes_nothing_and_names_what_is_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generated = loaded("generated")
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    files = {tmp_path / "deep" / "table.md": "new\n"}
    assert generated.main(files, ["--check"]) == 1
    assert capsys.readouterr().out == "deep/table.md is out of date\n"
    assert list(tmp_path.iterdir()) == []
    assert generated.main(files, []) == 0
    assert (tmp_path / "deep" / "table.md").read_text() == "new\n"
    assert generated.main(files, ["--check"]) == 0


def test_what_stands_between_comments_is_replaced_and_the_rest_stays() -> None:
    filled = loaded("generated").filled
    text = filled("x.yml", "a:\n  # mark; begins\n  # mark; ends\nb:\n", "mark", ["- one"], comment="#")
    assert text == "a:\n  # mark; begins\n  - one\n  # mark; ends\nb:\n"
    with pytest.raises(ValueError, match="x.yml must have a line '# mark; begins'"):
        filled("x.yml", "a:\n", "mark", [], comment="#")


def test_the_whole_documentation_in_one_file() -> None:
    """Has every page for users, and docstrings where the site has them."""
    text = loaded("llms").full()
    assert not re.search("^:::|<!--", text, re.MULTILINE)
    assert "expectile (float, default " in text
    for page in ("tutorials/first_agent.md", "algorithms/iql.md", "faq.md"):
        assert (DOCS / page).read_text("utf-8").partition("\n")[0] in text


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in LONG))
        for path in sorted((DOCS / "notebooks").glob("*.ipynb"))
    ],
)
def test_a_notebook_runs_without_a_server(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `polyak run` runs its cells, trainings shortened."""
    from polyak.compat.notebooks.runner import read_cells, run_cell

    monkeypatch.chdir(tmp_path)
    program = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    short = tmp_path / path.name
    content = json.loads(path.read_text("utf-8"))
    for cell in content["cells"]:
        cell["source"] = shortened("".join(cell["source"])) if cell["cell_type"] == "code" else cell["source"]
    short.write_text(json.dumps(content))
    cells = read_cells(str(short))
    assert len(cells) >= 3
    for cell in cells:
        run_cell(cell, path.name, vars(program))


def test_every_public_module_has_a_reference() -> None:
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "api").glob("*.md"))
    asked = set(re.findall(r"<!-- names of ([\w.]+) -->", pages))
    elsewhere = {"polyak", "polyak.compat.sb3", "polyak.compat.contrib"}
    assert asked == set(public_modules()) - elsewhere
    hooks = loaded("hooks")
    for name in asked:
        text = hooks.reference(name)
        module = __import__(name, fromlist=["__all__"])
        for public in module.__all__:
            assert re.search(rf"\b{public}\b", text), f"{name}.{public}"


def test_figures_are_those_of_the_gallery(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    gallery = loaded("gallery")
    shown = set(re.findall(r"\]\(images/([\w.]+)\)", (DOCS / "gallery.md").read_text("utf-8")))
    assert {name.partition(".")[0] for name in shown} == gallery.FIGURES.keys()
    assert shown == {path.name for path in (DOCS / "images").iterdir() if path.is_file()} - {"agents.webp"}
    assert "docs/images/halfcheetah.png" in (ROOT / "README.md").read_text("utf-8")
    gallery.halfcheetah(tmp_path)
    gallery.speed(tmp_path)
    gallery.cliff(tmp_path, steps=500)
    assert {path.name for path in tmp_path.iterdir()} == {"halfcheetah.png", "speed.png", "cliff.png"}
    with pytest.raises(SystemExit, match=r"no figures \['cheetah'\]"):
        gallery.main(["cheetah"])


def test_each_agent_of_the_gallery_has_a_small_film_and_a_curve() -> None:
    gallery = loaded("from_agents")
    assert gallery.PAGE.read_text("utf-8") == gallery.text(), "run python docs/from_agents.py"
    names = {gallery.stem(row) for row in gallery.agents()}
    assert len(names) >= 11
    there = {path.name: path.stat().st_size for path in gallery.IMAGES.iterdir()}
    assert there.keys() == {f"{name}.{kind}" for name in names for kind in ("webp", "png")}
    assert max(there.values()) <= gallery.MOST_BYTES


@pytest.mark.slow
def test_the_films_agent_is_trained_and_filmed(tmp_path: Path) -> None:
    for needed in ("matplotlib", "imageio", "pygame"):
        pytest.importorskip(needed)
    loaded("gallery").cartpole(tmp_path, steps=512, seeds=2)
    assert {path.name for path in tmp_path.iterdir()} == {"cartpole.png", "cartpole.gif"}
