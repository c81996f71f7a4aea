"""Programs for Stable-Baselines3 run under ``polyak run``, write below their ``--out`` only, and need no edit: those of
``examples/from_sb3``, and one for each other subject of its documentation."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import run_program

SHOWN = Path(__file__).parents[2] / "examples" / "from_sb3"
PROGRAMS = sorted(
    [*SHOWN.glob("*.py"), *Path(__file__).with_name("sb3_programs").glob("*.py")], key=lambda path: path.stem
)
SLOW = {"atari", "course_arm", "course_lander", "custom_policy", "export", "hindsight", "own_algorithm"}
PEERS = {"stable_baselines3", "gymnasium", "numpy", "torch", "ale_py"}

#: Fewer than by default, where those take long.
STEPS = {"atari": 32, "basic_training": 512, "course_arm": 200, "course_lander": 100}

#: A line that each prints when all went well.
SAYS = {
    "atari": "after a step: (2, 84, 84, 4)",
    "basic_training": "A2C has seen 200 steps",
    "course_arm": "the evaluation moved no statistics: True",
    "course_lander": "episodes of the evaluation: 10",
    "custom_policy": "own networks: ['mlp_extractor.policy_net.0.bias'",
    "export": "SAC's actor agrees: True",
    "hindsight": "a batch holds ['achieved_goal', 'desired_goal', 'observation'] (8, 1)",
    "own_algorithm": "the same surprise: True 8",
}


def test_every_program_is_known() -> None:
    assert {path.stem for path in PROGRAMS} == set(SAYS)


@pytest.mark.parametrize(
    "program",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in PROGRAMS],
)
def test_an_example_runs(program: Path, tmp_path: Path) -> None:
    if program.stem == "atari":
        pytest.importorskip("ale_py")
    here, out = tmp_path / "here", tmp_path / "out"
    here.mkdir()
    options = ["--out", str(out)] if '"--out"' in program.read_text() else []
    steps = ["--steps", str(STEPS[program.stem])] if program.stem in STEPS else []
    result = run_program([str(program), *options, *steps], here)
    assert result.returncode == 0, result.stderr
    assert SAYS[program.stem] in result.stdout
    assert list(here.iterdir()) == []
    assert out.exists() == bool(options)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_is_a_program_for_either_library(program: Path) -> None:
    tree = ast.parse(program.read_text())
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            top = name.partition(".")[0]
            assert top in PEERS or top in sys.stdlib_module_names, f"{program.name}:{node.lineno} imports {name}"


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_runs_under_the_library_it_was_written_for(program: Path, tmp_path: Path) -> None:
    """Needs a Python with Stable-Baselines3, named by ``POLYAK_SB3_PYTHON``."""
    python = os.environ.get("POLYAK_SB3_PYTHON")
    if not python:
        pytest.skip("POLYAK_SB3_PYTHON names no Python with Stable-Baselines3")
    options = ["--out", str(tmp_path / "out")] if '"--out"' in program.read_text() else []
    result = subprocess.run([python, str(program), *options], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    if "need another package" in result.stderr:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stderr
    assert SAYS[program.stem] in result.stdout
