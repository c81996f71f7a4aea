"""What the page of systems names is there."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs" / "seeds.md").read_text().splitlines() if re.match(r"\| (?!System|---)", line)]


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_what_is_there(row: str) -> None:
    _, place, checks = row.strip("| ").split(" | ")
    places, tests = re.findall(r"`([^`]+)`", place), re.findall(r"`([^`]+)`", checks)
    assert places
    assert tests
    for name in places:
        assert (ROOT / name).exists() if "/" in name else find_spec(name), name
    for name in tests:
        found = ROOT / name
        assert found.is_file() or list(found.rglob("test_*.py")), name
