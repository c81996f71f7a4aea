"""Programs written for RLlib, unchanged: what they say here is what they said there, as ``record.py`` wrote it down."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (FOLDER / "recorded").glob("*.json"))


def loaded(name: str) -> ModuleType:
    """A program whose imports of RLlib are answered by polyak; those of its neighbours are read anew."""
    path = FOLDER / "programs" / f"{name}.py"
    source = re.sub(r"^from ray\.(rllib|tune)", _answered, path.read_text(), flags=re.MULTILINE)
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def _answered(found: re.Match[str]) -> str:
    return "from polyak.compat.rllib" + (".tune" if found[1] == "tune" else "")


@pytest.fixture
def neighbours(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What programs share, as if each ran in a process of its own."""
    before = set(sys.modules)
    loaded("games")
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(FOLDER / "programs") in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
@pytest.mark.filterwarnings("ignore:.* runs as it is written")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_says_under_the_peer(name: str, neighbours: None) -> None:
    recorded = json.loads((FOLDER / "recorded" / f"{name}.json").read_text())
    said = json.loads(json.dumps(loaded(name).outcome(), default=lambda value: value.item()))
    assert said["equal"] == recorded["equal"]
    assert {key for key, count in said["called"].items() if count} == set(recorded["called"])
