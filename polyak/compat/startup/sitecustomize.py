"""Runs at the start of every Python process below ``polyak run``; see :mod:`polyak.compat.run`.

Python imports the first module called ``sitecustomize`` that it finds. This one stands in front, does its small part
and runs the one it hides. It imports nothing of polyak: that waits until a program asks for one of the names. Types are
in comments, as any Python may run this.
"""

import importlib.machinery
import importlib.util
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))


class _AtFirstUse:
    """Calls :func:`polyak.compat.install` when one of the names is first imported, says so at one of ``said_at``, and
    goes. With ``by_program``, imports by installed libraries, which only look whether there is such a package, are not
    counted."""

    def __init__(self, packages, names, said_at, by_program=False):
        # type: (list[str], list[str], list[str], bool) -> None
        self.packages, self.names, self.said_at, self.by_program = packages, names, said_at, by_program
        self.is_installed = False

    def find_spec(self, fullname, path=None, target=None):
        # type: (str, object, object) -> importlib.machinery.ModuleSpec | None
        if fullname not in self.names:
            return None
        if not self.is_installed and self.by_program and not _is_asked_by_program():
            return None
        sys.meta_path.remove(self)
        if not self.is_installed:
            self._install()
        found = importlib.util.find_spec(fullname)
        if fullname in self.said_at:
            _say(self.said_at)
        else:
            sys.meta_path.insert(0, self)  # before those just installed, which answer all the rest
        return found

    def _install(self):  # type: () -> None
        if importlib.util.find_spec("polyak") is None:
            sys.path.append(ROOT)  # polyak itself was imported from the folder where it was started, say
        from polyak.compat import install

        install(self.packages)
        self.is_installed = True


def _is_asked_by_program():  # type: () -> bool
    """Whether the current import is in code that is neither installed nor polyak's."""
    frame = sys._getframe(2)
    while _is_import_system(frame.f_code.co_filename):
        if frame.f_back is None:
            return True
        frame = frame.f_back
    file = os.path.abspath(frame.f_code.co_filename)
    installed = any(os.sep + folder + os.sep in file for folder in ("site-packages", "dist-packages"))
    places = (os.path.dirname(os.path.abspath(os.__file__)), os.path.join(ROOT, "polyak"))
    return not installed and not any(file.startswith(place + os.sep) for place in places)


def _is_import_system(file):  # type: (str) -> bool
    return file.startswith("<frozen") or os.path.basename(os.path.dirname(file)) == "importlib"


def _say(names):  # type: (list[str]) -> None
    """Say once, in this process or one that it comes from, that polyak answers these names."""
    line = "polyak run: polyak answers " + " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]]) + "."
    said = os.environ.get("POLYAK_RUN_SAID", "").split(";")
    if line not in said and "all" not in said and sys.stderr is not None:
        os.environ["POLYAK_RUN_SAID"] = ";".join([*said, line])
        print(line, file=sys.stderr, flush=True)


def _answer(only):  # type: (list[str]) -> None
    """Answer the packages ``only``; without any Stable-Baselines3's, and RLlib where the program imports it."""
    peers = [name for name in only if name != "ray"] or ([] if only else ["stable_baselines3", "sb3_contrib"])
    if peers:
        sys.meta_path.insert(0, _AtFirstUse(peers, peers, peers))
    if "ray" in only or not only:
        below = ["ray.rllib", "ray.tune"]
        sys.meta_path.insert(0, _AtFirstUse(["ray"], ["ray", *below], below, by_program=not only))


def _run_hidden():  # type: () -> None
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("POLYAK_RUN") == sys.prefix:  # another interpreter may not have what polyak needs
    _answer([name for name in os.environ.get("POLYAK_RUN_ONLY", "").split(",") if name])
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != FOLDER]
_run_hidden()
