"""RLlib's API on polyak's algorithms: configs that build algorithms, modules and catalogs. Also the processes that play
games on Ray.

Names are imported from their files when first used, so that importing this package stays light.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyak.compat.rllib_face._names import *  # noqa: F403

_STUB = ast.parse(Path(__file__).with_name("_names.pyi").read_text())
_HOME = {one.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for one in node.names}
CONFIGS = {
    name.removesuffix("Config"): f"{home}:{name}"
    for name, home in _HOME.items()
    if name.endswith("Config") and str(home).startswith(f"{__name__}.config.") and name != "AlgorithmConfig"
}
"""Names of algorithms -> their configs."""

__all__ = sorted([*_HOME, *CONFIGS])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(str(_HOME[name])), name)
    if name in CONFIGS:
        return importlib.import_module(f"{__name__}.trainables").get_trainable_cls(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
