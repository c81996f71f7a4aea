"""The same programs under Stable-Baselines3 and under polyak: what they return is the same, but for known differences.

The answers of Stable-Baselines3 are those of ``recorded/``, or live ones where ``POLYAK_SB3_PYTHON`` names a Python
that has it.
"""

import json
import os
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.parity.compare import mismatches, tolerance
from tests.parity.differences import DELIBERATE, MISSING, Difference, difference_at
from tests.parity.record import HERE, RECORDED, files, run
from tests.warm import run_program

PAGE = Path(__file__).parents[2] / "docs" / "from_sb3.md"
RUNNER = str(HERE / "runner.py")
FILES = files()
TABLE = (*DELIBERATE, *MISSING)


def peer(file: Path) -> dict[str, Any]:
    """What Stable-Baselines3 answers."""
    if python := os.environ.get("POLYAK_SB3_PYTHON"):
        return run([python], file)
    answers: dict[str, Any] = json.loads((RECORDED / f"{file.stem}.json").read_text())
    return answers


def answers(file: Path) -> dict[str, Any]:
    """What polyak answers."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_program([RUNNER, str(file), "answers.json"], Path(folder))
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(Path(folder, "answers.json").read_text())
        return result


SLOW = ("whole", "contrib", "files", "logs", "parameters")


@pytest.mark.parametrize(
    "file", [pytest.param(file, id=file.stem, marks=[pytest.mark.slow] * (file.stem in SLOW)) for file in FILES]
)
def test_the_answers_are_those_of_stable_baselines3(file: Path) -> None:
    recorded, live = peer(file), answers(file)
    assert recorded.keys() == live.keys(), "programs were added: run record.py"
    found = list(mismatches(recorded, live, file.stem, tolerance(file)))
    unknown = [mismatch for mismatch in found if difference_at(mismatch.path) is None]
    assert not unknown, "\n".join(f"{path}\n    SB3:    {one}\n    polyak: {two}" for path, one, two in unknown)
    paths = [mismatch.path for mismatch in found]
    for entry in TABLE:
        patterns = [pattern for pattern in entry.where if pattern.split("/")[0] == file.stem]
        agrees = patterns and not any(fnmatchcase(path, pattern) for path in paths for pattern in patterns)
        assert not agrees, f"{entry.title!r}: {patterns} agree by now; take them out of differences.py"


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.title)
def test_a_difference_is_in_the_documentation(entry: Difference) -> None:
    assert f"**{entry.title}.**" in PAGE.read_text(encoding="utf-8")
    assert entry.reason.endswith(".")


def test_patterns_name_files_of_programs() -> None:
    stems = {file.stem for file in FILES}
    for entry in TABLE:
        assert {pattern.split("/")[0] for pattern in entry.where} <= stems, entry.title


def test_a_wrong_answer_is_found() -> None:
    one = {"a": [1.0, {"dtype": "float32", "values": [1, 2]}], "b": "x", "c": {"raised": "ValueError", "message": "m"}}
    two = {"a": [1.1, {"dtype": "float64", "values": [1, 2]}], "c": {"raised": "TypeError", "message": "m"}, "d": None}
    found = {mismatch.path for mismatch in mismatches(one, two, "f", 1e-5)}
    assert found == {"f/a/0", "f/a/1/dtype", "f/b", "f/c", "f/d"}
    assert not list(mismatches(one, json.loads(json.dumps(one)), "f", 1e-5))
    assert not list(mismatches({"x": 1.0}, {"x": 1.0 + 1e-7}, "f", 1e-5))
    assert list(mismatches({"x": 1}, {"x": True}, "f", 1e-5))


@pytest.mark.slow
def test_compiled_trainings_are_those_of_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole trainings, with gradient steps as compiled programs."""
    monkeypatch.setenv("POLYAK_PARITY_COMPILED", "1")
    file = next(file for file in FILES if file.stem == "whole")
    live = run([sys.executable, "-m", "polyak", "run"], file)
    found = list(mismatches(peer(file), live, file.stem, tolerance(file)))
    assert not found, "\n".join(f"{path}\n    SB3:    {one}\n    polyak: {two}" for path, one, two in found)
