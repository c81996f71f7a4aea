"""Reads the package's import statements, also those inside functions and under ``TYPE_CHECKING``."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "polyak"
FLOORS = {
    "algorithm_info": 0,
    "arrays": 0,
    "formats": -1,
    "ops": 0,
    "schedules": -1,
    "seeding": 0,
    "suggestions": -1,
    "warning": -1,
    "writing": -1,
    "envs": 1,
    "archive": 2,
    "experience": 2,
    "hyperparameters": 2,
    "nn": 2,
    "noise": 2,
    "learning": 3,
    "collecting": 4,
    "checkpoint": 5,
    "distributed": 5,
    "evaluation": 5,
    "logging": 5,
    "callbacks": 6,
    "loops": 7,
    "parts": 8,
    "algorithm": 9,
    "network_algorithm": 10,
    "fields": 11,
    "algorithms": 12,
    "compat": 13,
    "zoo": 14,
}
FACES = ("custom", "rllib")
"""Public modules of names alone, on top of all floors."""
FLOORS |= dict.fromkeys(FACES, max(FLOORS.values()) + 1)


def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within one, without what they are made of, which is most of a tree."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from statements(each)


@cache
def imports(path: Path) -> list[tuple[str, int]]:
    """``(imported name, line)`` for every import of a module, wherever it stands."""
    found = []
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide where a name comes from"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def internal_imports(name: str, path: Path, known: dict[str, Path]) -> list[tuple[str, int]]:
    """The imports of a module that name another module of the package."""
    found = []
    for target, line in imports(path):
        if not target.startswith("polyak"):
            continue
        module = target if target in known else target.rpartition(".")[0]
        if module != name:
            found.append((module, line))
    return found


def named(path: Path) -> list[tuple[str, int]]:
    """``(text, line)`` for every text in a module that names a module of some floor, or leaves open which one."""
    if not re.search(r"[\"']polyak\.", text := path.read_text()):
        return []
    tree = ast.parse(text)
    sentences = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [
        (node.value, node.lineno)
        for node in texts
        if id(node) not in sentences and re.match(rf"polyak\.({'|'.join(FLOORS)})\b", node.value)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and re.match(r"polyak\.\{", ast.unparse(node)[2:]):
            found.append(("polyak.", node.lineno))
    return found


def floor_of(module: str) -> int | None:
    """The floor of a module; ``None`` for the package itself and ``__main__``."""
    parts = module.split(".")
    return FLOORS[parts[1]] if len(parts) > 1 and parts[1] in FLOORS else None
