"""What programs import: names that are found lazily are those that type checkers are shown, and they are short."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import polyak
from tests.laws.floors import FACES, PACKAGE, modules
from tests.laws.test_package import public_modules

ROOT = PACKAGE.parent
LAZY = ("polyak", "polyak.envs", "polyak.compat.rllib_face")


def shown(name: str) -> dict[str, str]:
    """Name -> module, of what stands as ``name as name`` in a stub, or in a module under ``if TYPE_CHECKING``: type
    checkers offer that alone."""
    path = ROOT.joinpath(*name.split("."))
    if (stub := path.with_suffix(".pyi")).exists():
        body = ast.parse(stub.read_text()).body
    else:
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        [body] = [node.body for node in ast.parse(file.read_text()).body if _is_for_type_checkers(node)]
    found: dict[str, str] = {}
    for node in body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            if alias.name == "*":
                found |= shown(node.module)
            elif alias.asname is not None:
                assert alias.asname == alias.name
                found[alias.name] = node.module
    return found


def _is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@pytest.mark.parametrize("name", LAZY)
def test_type_checkers_are_shown_what_is_found(name: str) -> None:
    module = importlib.import_module(name)
    places = shown(name)
    modules = set(getattr(module, "_MODULES", ()))
    not_shown = {"__version__", *(polyak.compat.rllib_face.CONFIGS if name == "polyak.compat.rllib_face" else ())}
    assert set(places) == ({*module.__all__} - not_shown) | modules
    for public, place in places.items():
        there = importlib.import_module(f"{place}.{public}") if public in modules else None
        assert getattr(module, public) is (there or getattr(importlib.import_module(place), public)), public


EXPERIMENTAL = {
    "polyak.algorithms.mce_irl",
    "polyak.algorithms.sac",
    "polyak.compat.sb3.common.env_util",
    "polyak.envs.games.checker",
    "polyak.envs.games.connect4",
    "polyak.envs.games.game",
    "polyak.envs.games.go",
    "polyak.envs.tabular.worlds",
    "polyak.zoo.plots.curves",
    "polyak.zoo.plots.grids",
    "polyak.zoo.ranking",
}
"""Modules that pages or examples import from without a promise that they stay; the fewer the better."""


def test_examples_and_pages_import_public_names() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    assert len(pages) > 50
    used = set()
    for page in pages:
        for module in re.findall(r"^ *from (polyak[\w.]*) import ", page.read_text("utf-8"), re.MULTILINE):
            used.add(module)
            assert module in {*public_modules(), *EXPERIMENTAL}, f"{page.name} imports from {module}"
    assert used >= EXPERIMENTAL, "some are not used any more"


def test_a_misspelt_name_is_corrected() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'EvalCalback'. Did you mean 'EvalCallback'?"):
        polyak.EvalCalback  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Evaluate'"):
        from polyak import Evaluate  # noqa: F401
    assert not hasattr(polyak, "__wrapped__")


def test_all_names_and_modules_are_listed_but_star_does_not_hide_pythons_logging() -> None:
    assert {"PPO", "evaluate", "load", "logging", "callbacks"} <= set(dir(polyak))
    assert not set(FACES) & set(polyak.__all__)


PROGRAM = Path(__file__).with_name("typed_program.py")


def test_the_typed_program_names_what_there_is() -> None:
    """Its imports, here; its types are :func:`test_mypy_knows_the_types_of_a_users_program`'s."""
    imports = [node for node in ast.parse(PROGRAM.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), PROGRAM.name, "exec"), {})


@pytest.mark.slow
def test_mypy_knows_the_types_of_a_users_program(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert pytestconfig.cache is not None
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nfollow_imports = silent\nignore_missing_imports = True\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config)]
    command += ["--cache-dir", str(pytestconfig.cache.mkdir("mypy")), str(PROGRAM)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_two_classes_have_one_name() -> None:
    """Except for those of a peer, whose names its face repeats: each of the two faces once."""
    faces = {"rllib_face": "rllib"}
    places: dict[tuple[str, str], list[str]] = {}
    for name, path in modules().items():
        _, room, *rest = name.split(".")[:3] if "." in name else (name, "", "")
        face = faces.get(rest[0], "sb3") if room == "compat" and rest else ""
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault((face, node.name), []).append(name)
    assert not {found[1]: where for found, where in places.items() if len(where) > 1}
