"""Runs at the start of every Python process below ``polyak run``; see :mod:`polyak.compat.run`.

Python imports the first module called ``sitecustomize`` that it finds. This one stands in front, does its small part
and runs the one it hides. It imports nothing of polyak: that waits until a program asks for one of the names.
"""

import importlib.machinery
import importlib.util
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))


class _AtFirstUse:
    """Calls :func:`polyak.compat.install` when the first of the names is imported, and goes."""

    def __init__(self, names):  # type: ignore[no-untyped-def]  # any Python may read this
        self.names = names

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname not in self.names:
            return None
        if importlib.util.find_spec("polyak") is None:
            sys.path.append(ROOT)  # polyak itself was imported from the folder where it was started, say
        from polyak.compat import install

        sys.meta_path.remove(self)
        install(self.names)
        return importlib.util.find_spec(fullname)


def _run_hidden():  # type: ignore[no-untyped-def]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("POLYAK_RUN") == sys.prefix:  # another interpreter may not have what polyak needs
    sys.meta_path.insert(0, _AtFirstUse(os.environ.get("POLYAK_RUN_ONLY", "stable_baselines3,sb3_contrib").split(",")))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != FOLDER]
_run_hidden()
