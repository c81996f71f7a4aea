"""docs/seeds.md names what there is: each of its tests, and a test for each of its rows."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "seeds.md").read_text("utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
VERDICTS = {"works", "differs", "refused"}
"""Those of rows that name a test; an ``idea`` has none."""


@cache
def defined(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_is_there() -> None:
    found = NAMED.findall(PAGE)
    missing = {path for path, _ in found if not (ROOT / path).is_file()}
    assert not missing
    assert not {f"{path}::{name}" for path, name in found if name and name not in defined(path)}
    assert len(found) > 400


def test_every_row_names_one() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("|")]
    named = [row for row in rows if len(row) == 4 and row[1] not in ("Here", "---")]
    assert {row[1] for row in named} == VERDICTS | {"idea"}
    assert not [row for row in named if row[1] in VERDICTS and not NAMED.search(row[3])]
    assert all(len(row) in (2, 4) for row in rows)
