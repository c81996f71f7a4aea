"""The site: searching for the field's words finds the right page first; what is made of other files is up to date."""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.laws.floors import PACKAGE
from tests.laws.test_package import public_modules

ROOT = PACKAGE.parent
DOCS = ROOT / "docs"

TERMS: dict[str, set[str]] = {
    "recurrent": {"memory", "tutorials/recurrent_and_masked"},
    "LSTM": {"memory", "tutorials/recurrent_and_masked"},
    "partial observability": {"memory"},
    "image observations": {"spaces"},
    "off-policy evaluation": {"offline_evaluation"},
    "importance sampling": {"offline_evaluation"},
    "opponent pool": {"games"},
    "self-play": {"games"},
    "tree search": {"games"},
    "action masks": {"masks", "tutorials/recurrent_and_masked"},
    "invalid actions": {"masks"},
    "behaviour cloning": {"tutorials/imitation", "imitation", "algorithms/bc"},
    "behavior cloning": {"imitation"},
    "imitation learning": {"imitation", "tutorials/imitation"},
    "inverse reinforcement learning": {"imitation"},
    "offline reinforcement learning": {"offline", "tutorials/offline"},
    "hindsight experience replay": {"replay"},
    "prioritised replay": {"replay"},
    "n-step": {"replay"},
    "vectorised environments": {"environments"},
    "vectorized environments": {"environments"},
    "normalisation": {"tutorials/normalization"},
    "normalization": {"tutorials/normalization"},
    "tuning hyper-parameters": {"tuning", "tutorials/tuning"},
    "resuming": {"saving"},
    "ONNX": {"deployment"},
    "distributed training": {"scale"},
    "features extractor": {"custom_policy", "tutorials/own_network"},
    "learning curves": {"plotting"},
    "TensorBoard": {"logging"},
    "callbacks": {"callbacks"},
    "GPU": {"speed", "installation"},
    "tabular": {"classics"},
    "model-based": {"model_based"},
    "cross-entropy method": {"model_based", "algorithms/pets"},
    "deployment": {"deployment", "tutorials/export"},
    "does not learn": {"tutorials/debugging"},
}
"""What people search for -> the pages of which one should come first."""


def words(text: str) -> list[str]:
    """Tokens as the site's search makes them: lower case, split at spaces and hyphens, without marks."""
    return [token for part in re.split(r"[\s\-/]+", text.lower()) if (token := part.strip("`.,;:!?()[]{}\"'*|<>=_#"))]


def search(sections: list[dict[str, str]], query: str) -> str:
    """The page whose best section has the highest BM25 score, titles counting a thousand times as much as text, among
    those in which all words occur: how lunr ranks in mkdocs-material's setting."""
    boosts, k, b = {"title": 1000.0, "text": 1.0}, 1.2, 0.75
    fields = {name: [Counter(words(section[name])) for section in sections] for name in boosts}
    mean = {name: sum(c.total() for c in counts) / len(counts) for name, counts in fields.items()}
    wanted = words(query)
    scores: dict[str, float] = {}
    for number, section in enumerate(sections):
        counts = {name: fields[name][number] for name in boosts}
        if not all(any(word in counter for counter in counts.values()) for word in wanted):
            continue
        score = 0.0
        for word in wanted:
            found = sum(any(word in fields[name][i] for name in boosts) for i in range(len(sections)))
            rarity = math.log(1 + (len(sections) - found + 0.5) / (found + 0.5))
            for name, boost in boosts.items():
                n, length = counts[name][word], counts[name].total() / max(mean[name], 1e-9)
                score += boost * rarity * n * (k + 1) / (n + k * (1 - b + b * length))
        page = re.sub(r"(/?index)?(\.html|\.md|/)?(#.*)?$", "", section["location"])
        scores[page] = max(scores.get(page, 0.0), score)
    return max(scores, key=lambda page: scores[page]) if scores else ""


def sections_of_pages() -> list[dict[str, str]]:
    """Sections of the pages that are written by hand, code left out of their text."""
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        location = path.relative_to(DOCS).as_posix()
        text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
        for heading, body in re.findall(r"^#+ ([^\n]+)\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL):
            found.append({"location": location, "title": heading, "text": body})
    return found


SECTIONS = sections_of_pages()


@pytest.mark.parametrize("term", TERMS)
def test_a_search_finds_the_right_page_first(term: str) -> None:
    assert search(SECTIONS, term) in TERMS[term]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mkdocs builds; warnings are errors."""
    for needed in ("mkdocs", "material", "mkdocstrings", "griffe"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install 'polyak[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_and_its_own_index_finds_the_pages(site: Path) -> None:
    index: list[dict[str, Any]] = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    plain = [
        {**item, "text": re.sub(r"<[^>]+>", " ", item["text"]), "title": re.sub(r"<[^>]+>", "", item["title"])}
        for item in index
    ]
    wrong = {term: first for term, pages in TERMS.items() if (first := search(plain, term)) not in pages}
    assert not wrong


@pytest.mark.slow
def test_links_within_the_site_lead_somewhere(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#:?]+)(?:#[^"]*)?"', page.read_text("utf-8")):
            linked = (site / target.lstrip("/")) if target.startswith("/") else (page.parent / target)
            if page.name != "404.html" and not linked.exists():
                missing.append(f"{page.relative_to(site)}: {target}")
    assert not missing


# -- what is made of other files ---------------------------------------------------------------------------------------


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebooks_are_up_to_date() -> None:
    """Their code is that of pages, which :mod:`tests.zoo.test_docs` runs."""
    for path, text in loaded("notebooks").files().items():
        assert path.read_text("utf-8") == text, f"{path.name} is out of date: run python docs/notebooks.py"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem == "offline"))
        for path in sorted((DOCS / "notebooks").glob("*.ipynb"))
    ],
)
def test_a_notebook_runs_without_a_server(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `polyak run` runs its cells, trainings shortened."""
    from polyak.compat.notebooks.runner import read_cells, run_cell
    from tests.zoo.test_docs import shortened

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
    for name in asked:
        text = loaded("hooks").reference(name)
        module = __import__(name, fromlist=["__all__"])
        for public in module.__all__:
            assert re.search(rf"\b{public}\b", text), f"{name}.{public}"


def test_figures_are_those_of_the_gallery(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    gallery = loaded("gallery")
    shown = set(re.findall(r"\]\(images/([\w.]+)\)", (DOCS / "gallery.md").read_text("utf-8")))
    assert {name.partition(".")[0] for name in shown} == gallery.FIGURES.keys()
    assert shown == {path.name for path in (DOCS / "images").iterdir()}
    assert "docs/images/halfcheetah.png" in (ROOT / "README.md").read_text("utf-8")
    gallery.halfcheetah(tmp_path)
    gallery.speed(tmp_path)
    gallery.cliff(tmp_path, steps=500)
    assert {path.name for path in tmp_path.iterdir()} == {"halfcheetah.png", "speed.png", "cliff.png"}
    with pytest.raises(SystemExit, match=r"no figures \['cheetah'\]"):
        gallery.main(["cheetah"])


@pytest.mark.slow
def test_the_films_agent_is_trained_and_filmed(tmp_path: Path) -> None:
    for needed in ("matplotlib", "imageio", "pygame"):
        pytest.importorskip(needed)
    loaded("gallery").cartpole(tmp_path, steps=512, seeds=2)
    assert {path.name for path in tmp_path.iterdir()} == {"cartpole.png", "cartpole.gif"}


def test_ratios_of_readme_are_those_that_were_measured() -> None:
    """Of the rows that cite ``bench.md``."""
    rows = {row[0]: row[4:] for row in loaded("gallery").bench_rows()}
    readme = (ROOT / "README.md").read_text("utf-8")
    for task, name in {
        "PPO, CartPole-v1, 8 env": "ppo-cartpole-8",
        "DQN, CartPole-v1 |": "dqn-cartpole",
        "SAC, HalfC": "sac-halfcheetah",
    }.items():
        line = next(line for line in readme.splitlines() if task in line and "x, " in line)
        said = re.findall(r"([\d.]+)x", line)
        measured = [float(ratio.rstrip("x")) for ratio in rows[name]]
        assert [float(ratio) for ratio in said] == measured, line
