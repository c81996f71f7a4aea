"""Programs written for RLlib, unchanged: what they say here is what they said there, as ``record.py`` wrote it down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.warm import run_program

FOLDER = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (FOLDER / "recorded").glob("*.json"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_says_under_the_peer(name: str, tmp_path: Path) -> None:
    recorded = json.loads((FOLDER / "recorded" / f"{name}.json").read_text())
    made = run_program([str(FOLDER / "programs" / "say.py"), name], tmp_path)
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout.splitlines()[-1])
    assert said["equal"] == recorded["equal"]
    assert {key for key, count in said["called"].items() if count} == set(recorded["called"])
