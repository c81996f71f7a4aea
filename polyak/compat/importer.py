"""Answers imports of another library's module names with modules whose names point into polyak.

A module made here holds nothing of its own: it is filled from a table of names when it is imported,
and filled again if a program takes it out of ``sys.modules`` and imports it again. An installed copy of the other
library is never looked at, unless the finder is asked to complete the table from it: then modules and names that it
lacks are those of the installed copy, which is not run before the first of them is asked for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

Table = Mapping[str, tuple[str, ...]]
"""Module path below the root -> lines ``"home: Name Other=attribute"``."""


def placed(face: str, modules: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The table of a file of names, in which paths with the same names share a line.

    Args:
        face: the package in which names are, or the files that they name, unless those are named from ``polyak`` on.
        modules: ``{"path other.path": "Name; file: Name Other=attribute; polyak.file: Name"}``.
    """

    def line(names: str) -> str:
        file, colon, entries = names.strip().rpartition(":")
        home = file if file.startswith("polyak.") else f"{face}.{file}" if colon else face
        return f"{home}: {entries.strip()}"

    return {
        path: tuple(line(part) for part in names.split(";") if part)
        for paths, names in modules.items()
        for path in paths.split() or [""]
    }


def parse(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """``(name, home module, attribute)`` for each name of a module's lines in the table."""
    for line in lines:
        home, _, names = line.partition(":")
        for entry in names.split():
            name, _, attribute = entry.partition("=")
            yield name, home, attribute or name


class AliasFinder(MetaPathFinder, Loader):
    """Finds and fills the modules of one root name.

    Args:
        root: the import name to answer, such as ``stable_baselines3``.
        table: what its modules hold.
        needs: libraries that a module needs at import, as ``{module path: {library: error message}}``.
        completes: take what the table lacks from an installed library of that name.
        refused: names that the table lacks on purpose, as ``{module path: {name: why, and what to do}}``.
        prepares: ``{module path: "module:function"}``, called once an installed module has been run.
    """

    def __init__(
        self,
        root: str,
        table: Table,
        needs: Mapping[str, Mapping[str, str]] | None = None,
        completes: bool = False,
        refused: Mapping[str, Mapping[str, str]] | None = None,
        prepares: Mapping[str, str] | None = None,
    ) -> None:
        self.root, self.table, self.needs, self.completes = root, table, needs or {}, completes
        self._refused = refused or {}
        self._prepares = dict(prepares or {})
        self._homes = {name: (home, attr) for lines in table.values() for name, home, attr in parse(lines)}
        self._installed: dict[str, ModuleType] = {}

    def _path(self, fullname: str) -> str | None:
        """The path below the root of a module that polyak answers, else None."""
        if fullname == self.root:
            return ""
        path = fullname.removeprefix(self.root + ".")
        return path if path != fullname and path in self.table else None

    def _is_package(self, path: str) -> bool:
        return path == "" or any(other.startswith(path + ".") for other in self.table)

    # -- the import system's side --------------------------------------------------------------------------------------

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.root and not fullname.startswith(self.root + "."):
            return None
        below, installed = self._path(fullname), self._find_installed(fullname, path)
        if below is None:
            if installed is not None:
                if self._path(package := fullname.rpartition(".")[0]) is not None:
                    self._installed_module(package)  # it is run before what is in it
                return installed
            hint = f", and no {self.root} is installed that has it" if self.completes else ""
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: polyak does not answer this name{hint}", name=fullname
            )
        spec = ModuleSpec(fullname, self, origin=f"polyak ({fullname})", is_package=self._is_package(below))
        if installed is not None and installed.submodule_search_locations is not None:
            spec.submodule_search_locations = installed.submodule_search_locations
        return spec

    def _find_installed(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """The spec of the installed library's module, if the table is to be completed from it."""
        if not self.completes:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        return next((spec for finder in others if (spec := finder.find_spec(fullname, path)) is not None), None)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        path = self._path(module.__name__)
        assert path is not None
        for library, message in self.needs.get(path, {}).items():
            try:
                import_module(library)
            except ImportError as error:
                raise ImportError(message) from error
        entries = list(parse(self.table[path]))
        for name, home, attribute in entries:
            setattr(module, name, getattr(import_module(home), attribute))
        module.__doc__ = f"{module.__name__}, answered by polyak."
        module.__dict__["__getattr__"] = lambda name: self._further(module.__name__, path, name)
        self._installed.pop(module.__name__, None)
        if not self.completes:
            module.__dict__["__all__"] = [name for name, _, _ in entries if not name.startswith("_")]

    # -- names a module does not list ----------------------------------------------------------------------------------

    def _further(self, module: str, path: str, name: str) -> Any:
        """A submodule, as ``sb3.common.noise`` reaches one, or a public name of another module.

        Programs import names from wherever the other library happened to import them itself.
        """
        if (why := self._refused.get(path, {}).get(name)) is not None:
            raise ImportError(f"cannot import name {name!r} from {module!r}: polyak does not answer it: {why}.")
        below = f"{path}.{name}".removeprefix(".")
        if below in self.table:
            return import_module(f"{self.root}.{below}")
        if not self._is_package(path) and name in self._homes:
            home, attribute = self._homes[name]
            return getattr(import_module(home), attribute)
        other = {"sb3": "", "utils": "common.utils", "type_aliases": "common.type_aliases"}.get(name)
        if path and other in self.table:  # as the other library's modules call its own
            return import_module(f"{self.root}.{other}".rstrip("."))
        with contextlib.suppress(LookupError):
            return import_module("polyak.compat.sb3_face.reexports").find(path, name)
        if name == "__all__" and self.completes:
            listed = [entry for entry, _, _ in parse(self.table[path]) if not entry.startswith("_")]
            return sorted({*listed, *_public(self._installed_module(module))})
        own = name.startswith("__") and name.endswith("__")  # the import system asks for __path__
        if not own and (installed := self._installed_module(module)) is not None:
            return getattr(installed, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def _installed_module(self, fullname: str) -> ModuleType | None:
        """The installed library's own module of a name that the table has too; it is run when it is first needed."""
        package = fullname.rpartition(".")[0]
        if fullname not in self._installed and self._path(package) is not None:
            self._installed_module(package)  # it is run before what is in it
        if fullname not in self._installed:
            parent = sys.modules.get(package)
            spec = self._find_installed(fullname, getattr(parent, "__path__", None))
            if spec is None or spec.loader is None:
                return None
            self._installed[fullname] = module_from_spec(spec)  # before it is run: what it imports may come back here
            try:
                spec.loader.exec_module(self._installed[fullname])
            except BaseException:
                del self._installed[fullname]
                raise
            path = self._path(fullname)
            if path is not None and (function := self._prepares.pop(path, None)) is not None:
                resolve_name(function)()
        return self._installed[fullname]


def _public(module: ModuleType | None) -> list[str]:
    """The names of ``from module import *``; empty for None."""
    if module is None:
        return []
    return list(getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]))


def install(finder: AliasFinder) -> None:
    """Let ``finder`` answer its root from now on, before installed packages.

    Raises:
        ImportError: the real library has already been imported in this process.
    """
    if any(isinstance(other, AliasFinder) and other.root == finder.root for other in sys.meta_path):
        return
    loaded = sys.modules.get(finder.root)
    if loaded is not None and not isinstance(getattr(loaded.__spec__, "loader", None), AliasFinder):
        raise ImportError(
            f"{finder.root} is already imported, from {getattr(loaded, '__file__', '?')}: call "
            "polyak.compat.install() before anything imports it."
        )
    sys.meta_path.insert(0, finder)
