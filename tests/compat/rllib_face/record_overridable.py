"""Writes ``overridable.json``: the names of the methods that RLlib marks as a program's to override, by class.

An interpreter that has ``ray[rllib]`` runs this. Sources are read and not run: names are all that is taken.
"""

import ast
import json
from importlib.util import find_spec
from pathlib import Path

FOLDERS = ("algorithms", "callbacks", "connectors", "core")
NOT_HERE = ("tests", "examples", "meta_learner", "differentiable", "dreamerv3", "iql", "marwil", "bc", "cql", "offline")
MARK = "OverrideToImplementCustomLogic"


def marked(source: str) -> dict[str, list[str]]:
    """Class -> methods with the mark."""
    found: dict[str, list[str]] = {}
    for owner in ast.parse(source).body:
        if isinstance(owner, ast.ClassDef):
            methods = [part for part in owner.body if isinstance(part, ast.FunctionDef)]
            names = [one.name for one in methods if any(MARK in ast.unparse(mark) for mark in one.decorator_list)]
            if names:
                found[owner.name] = names
    return found


if __name__ == "__main__":
    spec = find_spec("ray.rllib")
    assert spec is not None
    root = Path(str(spec.origin)).parent
    classes: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if not any(part in str(path.relative_to(root)) for part in NOT_HERE):
                classes |= marked(path.read_text())
    target = Path(__file__).parent / "overridable.json"
    target.write_text(json.dumps(classes, indent=1, sort_keys=True) + "\n")
