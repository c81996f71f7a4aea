"""Code in the README and the documentation compiles, and every name that it imports exists."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_name_what_exists(snippet: str) -> None:
    for node in ast.walk(ast.parse(snippet)):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = re.sub(r"(learn\((?:total_timesteps=)?)[\d_]+", r"\g<1>130", snippet)
    short = re.sub(r"(eval_freq=|save_freq=)[\d_]+", r"\g<1>100", short)
    if "make_atari_env" in short:
        pytest.importorskip("ale_py")
    exec(compile(short, "snippet", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+\.md)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), f"{page.name} links to {target}"
