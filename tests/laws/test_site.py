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
