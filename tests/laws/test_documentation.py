"""Losses state their shapes, and public names have docstrings."""

import ast
import re

from tests.laws.floors import PACKAGE, modules

SHAPE = re.compile(r"\[[A-Z0-9]*(, ?[A-Z0-9.+ ]+)*\]|\[\]")


def _losses() -> list[tuple[str, ast.FunctionDef]]:
    """Module-level public functions of the algorithm files that come before their learner: the losses."""
    found = []
    for path in sorted((PACKAGE / "algorithms").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                break
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found.append((path.name, node))
    return [item for item in found if item[0] != "__init__.py"]


def test_a_loss_states_its_shapes() -> None:
    losses = _losses()
    assert len(losses) > 50
    without = [(file, each.name) for file, each in losses if not SHAPE.search(ast.get_docstring(each) or "")]
    assert not without, "they do not say what shapes they take and give"


def test_every_algorithm_file_has_losses() -> None:
    """Unless it extends an algorithm that has."""
    files = {path.name: path.read_text() for path in (PACKAGE / "algorithms").glob("[!_]*.py")}
    without = files.keys() - {file for file, _ in _losses()}
    assert all("from polyak.algorithms." in files[name] for name in without), without
    assert len(without) < len(files) / 2


def test_public_names_are_documented() -> None:
    without = []
    for path in modules().values():
        tree = ast.parse(path.read_text())
        if path.stat().st_size and not ast.get_docstring(tree):
            without.append(f"{path} has no docstring")
        for node in tree.body:
            is_public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if is_public and not ast.get_docstring(node):
                without.append(f"{path}:{node.lineno}: {node.name} has no docstring")
    assert not without, "\n".join(without)
