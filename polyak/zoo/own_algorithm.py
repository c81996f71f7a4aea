"""An algorithm of the user's own: ``--algo my_file.py:MyAlgorithm``, or a class of a module, ``my_module:MyAlgorithm``.

As with environments, what the command line names is run; what only a run folder names is not: see `untrusted`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.own_code import find_in_file, import_module, load_file, written


def load_algorithm(text: str) -> type[Any]:
    """Import the class that `text` names.

    Raises:
        ZooError: there is no such file, module or class; its code raises; it is not derived from an algorithm of
            polyak; or it has the name of another, whose runs would be in the same folder.
    """
    from polyak.algorithm import Algorithm
    from polyak.algorithms import names, registered_as

    module, _, name = text.rpartition(":")
    if text.endswith(".py"):
        raise ZooError(f"--algo {text!r} names a file only. Add the class in it: {text}:NAME.")
    if module.endswith(".py"):
        path, _ = find_in_file(text, "--algo")
        found = getattr(load_file(path), name)
    else:
        holder = import_module(module, "that should hold an algorithm (--algo)")
        found = getattr(holder, name, None)
        if found is None:
            raise ZooError(f"--algo {text!r}: the module has no class {name!r}.{did_you_mean(name, vars(holder))}")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ZooError(
            f"--algo {text!r} is not a class of algorithms. Derive it from one of polyak's: class {name}(polyak.PPO)."
        )
    if name.lower() in names() and registered_as(found) != name.lower():
        raise ZooError(
            f"--algo {text!r} is called like {name.lower()!r}, which is another algorithm and has its runs in the same "
            "folder. Give the class another name."
        )
    return found


def stored_text(text: str) -> str:
    """Return ``--algo`` as a run folder stores it: a file relative to the current folder if it is below that."""
    place, _, name = text.rpartition(":")
    return written(Path(place).expanduser().resolve(), name) if place.endswith(".py") else text
