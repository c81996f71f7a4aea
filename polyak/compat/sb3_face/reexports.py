"""Names of other libraries that Stable-Baselines3's modules have because they import them.

Programs read them there, such as ``stable_baselines3.common.callbacks.tqdm``. Every module answers all of them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from polyak.compat.importer import parse
from polyak.compat.sb3_face.table import NAMES

_NAMES = NAMES["reexports"]
_HOMES = {name: (home, attribute) for name, home, attribute in parse(map(": ".join, _NAMES["names"].items()))}
for _entry in _NAMES["modules"].split():
    _name, _, _module = _entry.partition("=")
    _HOMES[_name] = _module or _name, ""
_OWN: dict[str, Any] = {name: TypeVar(name) for name in _NAMES["variables"].split()}
_OWN["gym_installed"] = find_spec("gym") is not None


def find(path: str, name: str) -> Any:
    """The value of a name in one of the peer's modules; ``None`` of a library that is not installed.

    Args:
        path: the module, below the root.
        name: what is looked for there.

    Raises:
        LookupError: it is none of these names.
    """
    if name in _OWN:
        return _OWN[name]
    home, attribute = _NAMES["in one module"].get(f"{path}.{name}") or _HOMES[name]
    try:
        module = import_module(home)
    except ImportError:
        return None
    return getattr(module, attribute) if attribute else module
