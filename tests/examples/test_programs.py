"""The programs of ``examples/``: each runs shortly, writes where it is started only, and imports public names alone."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.laws.test_package import public_modules

FOLDER = Path(__file__).parents[2] / "examples"
SHORT: dict[str, dict[str, Any]] = {
    "export_to_onnx": {"steps": 512},
    "first_agent": {"steps": 512},
    "hindsight": {"steps": 700, "bits": 4},
    "imitation": {"steps": 600},
    "masks": {"steps": 200},
    "normalization": {"steps": 1024},
    "offline_learning": {"steps": 600, "updates": 20},
    "own_environment": {"steps": 150},
    "own_network": {"steps": 200},
    "recurrent": {"steps": 1024},
    "self_play": {"steps": 2048, "games": 4},
    "several_processes": {"steps": 512, "transport": "local"},
    "tabular": {"steps": 2_000},
    "tuning": {"steps": 256, "trials": 2},
    "vectorized_environments": {"steps": 64},
}
"""Arguments of each ``main`` under which it takes seconds."""
NEEDS = {"export_to_onnx": "onnxruntime", "tuning": "optuna"}


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # worker processes and files look for its classes there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def result(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the program of a name returns when it is cut short."""
    name = request.param
    pytest.importorskip(NEEDS.get(name, "polyak"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # forgotten afterwards
    return imported(name).main(**SHORT[name])


def test_every_program_is_known_and_listed() -> None:
    found = {path.stem for path in FOLDER.glob("*.py")}
    assert found == SHORT.keys()
    listed = (FOLDER / "README.md").read_text("utf-8")
    for path in FOLDER.rglob("*.py"):
        assert f"]({path.relative_to(FOLDER).as_posix()})" in listed, f"examples/README.md does not link {path.name}"


@pytest.mark.parametrize("name", SHORT)
def test_a_program_is_short_and_imports_what_is_public(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) <= 50
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polyak"):
            assert node.module in public_modules()


LONG = (
    *("offline_learning", "imitation", "normalization", "recurrent", "hindsight"),
    *("several_processes", "tuning", "self_play", "vectorized_environments"),
)
"""Those that train for seconds."""


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in LONG))
        for name in sorted(SHORT.keys() - {"tabular", "export_to_onnx"})
    ],
    indirect=True,
)
def test_a_program_runs(result: Any) -> None:
    assert result is not None


@pytest.mark.parametrize("result", ["tabular"], indirect=True)
def test_the_tables_find_the_best_return(result: dict[str, float]) -> None:
    assert result["the best possible"] == pytest.approx(-13)
    assert result["the best possible"] >= result["QLearning"]


@pytest.mark.parametrize("result", ["export_to_onnx"], indirect=True)
def test_the_exported_policy_acts_as_the_model_does(result: float) -> None:
    assert result < 2e-5  # torques up to 2; see tests/exported.py
