"""The pages of the algorithms: what is written by hand, and what generates the rest."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from polyak import PPO
from polyak.algorithms import REGISTRY
from polyak.hyperparameters.docstrings import sentence

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted({*(DOCS / "algorithms").glob("*.md")} - {DOCS / "algorithms" / "index.md"})


def prose(text: str) -> str:
    """A page without what is generated, its code and its headings."""
    written = re.sub(r"<!-- [^\n]*; begins -->.*?<!-- [^\n]*; ends -->|```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"^(#|!\[).*$", "", written, flags=re.MULTILINE)


def test_a_page_of_an_algorithm_teaches() -> None:
    """It has prose of its own, an example, which :mod:`tests.zoo.test_docs` runs, equations, and what was checked."""
    poor = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
        _, _, example = text.partition("\n## Example\n")
        poor[page.stem] = {
            "words": len(prose(text).split()) >= 120,
            "example": "```python\n" in example.partition("\n## ")[0],
            "parts": parts[:5] == ["Example", "Equations", "Settings and pitfalls", "What was verified", "Options"],
            "tests": all((ROOT / path).exists() for path in re.findall(r"`((?:tests|benchmarks)/[\w./-]+)`", text)),
        }
    assert len(poor) >= 48
    assert not {name: checks for name, checks in poor.items() if not all(checks.values())}


def test_what_users_see_of_ppo_is_little_and_documented() -> None:
    settings = {field.name for field in fields(PPO)}
    shown = {name for name in dir(PPO("MlpPolicy", "CartPole-v1")) if not name.startswith("_")}
    assert settings <= shown
    assert len(shown - settings) <= 35
    assert {name for name in dir(PPO) if not name.startswith("_")} <= shown - settings
    called = {name: getattr(PPO, name, None) for name in shown}
    texts = {name: inspect.getdoc(v) for name, v in called.items() if callable(v) or isinstance(v, property)}
    without = [name for name in shown if not (sentence(PPO, name) or texts.get(name))]
    assert not without
    for name in ("policy_class", "lr_schedule", "rollout_buffer", "ep_info_buffer", "n_envs", "get_env", "train"):
        assert name in shown, f"programs for Stable-Baselines3 read {name}"


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
            assert members[method].is_function, f"{name}.{method}"
            assert members[method].docstring is not None, f"{name}.{method}"
