"""What generates the pages of the algorithms: signatures as one would write them, docstrings, an introduction."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from polyak.algorithms import REGISTRY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "algorithms").glob("*.md"))


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_begins_with_prose(page: Path) -> None:
    text = loaded("hooks").on_page_markdown(page.read_text(encoding="utf-8"))
    title, begins, rest = text.partition("\n\n")
    assert title.startswith("# ")
    assert begins
    assert not rest.lstrip().startswith((":::", "#"))
    assert "Shapes:" not in rest.partition(":::")[0]


def test_an_introduction_is_what_the_file_says_and_prose_of_ones_own_stays() -> None:
    hooks = loaded("hooks")
    made = hooks.on_page_markdown("# SAC\n\n::: polyak.algorithms.sac.SAC\n    options:\n")
    assert made.startswith("# SAC\n\n**Soft Actor-Critic (SAC).**\n\n")
    assert "arXiv:1812.05905" in made
    assert made.endswith("::: polyak.algorithms.sac.SAC\n    options:\n")
    own = "# SAC\n\nIt learns.\n\n::: polyak.algorithms.sac.SAC\n"
    assert hooks.on_page_markdown(own) == own


@pytest.fixture(scope="module")
def package() -> Any:
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(DOCS / "api.py") + ":Readable")
    return griffe.load("polyak", search_paths=[str(ROOT)], extensions=extensions)


def test_signatures_are_plain(package: Any) -> None:
    hidden = re.compile(
        r"Becomes|Annotated|InitVar|ClassVar|later\(|\blambda\b|Only\(|\b_init|action_spaces|policies\b"
        r"|Fixed|Reload|NewModel|Scheduled|With[A-Z]"
    )
    for entry in REGISTRY.values():
        module, _, name = entry.partition(":")
        cls = package[f"{module.removeprefix('polyak.')}.{name}"]
        shown = {p.name: f"{p.name}: {p.annotation} = {p.default}" for p in cls.parameters}
        assert "env" in shown
        assert not [text for text in shown.values() if hidden.search(text)], name


def test_methods_have_the_docstrings_that_they_inherit(package: Any) -> None:
    for entry in REGISTRY.values():
        module, _, name = entry.partition(":")
        members = package[f"{module.removeprefix('polyak.')}.{name}"].all_members
        for method in ("learn", "predict", "save", "load"):
            assert members[method].docstring is not None, f"{name}.{method}"
