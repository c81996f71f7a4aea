"""Code of the user's own: an environment or algorithm in a file, ``my_env.py:MyEnv``, or in a module of this folder.

Code that the command line names is run, as ``python my_env.py`` would run it. Code that only a file names is not: see
`untrusted`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError


@dataclass(frozen=True)
class EnvFile:
    """Makes the environment `name` (a class or a function) of the Python file `path`.

    It is an entry point for gymnasium, and can be pickled: a worker process reads the file again.
    """

    path: str
    name: str

    def __call__(self, **kwargs: Any) -> Any:
        """Make one environment."""
        return self.maker(**kwargs)

    @property
    def maker(self) -> Any:
        """The class or function itself."""
        return getattr(load_file(Path(self.path)), self.name)

    @property
    def metadata(self) -> dict[str, Any]:
        """The class's metadata if it declares render modes; gymnasium checks with ``hasattr``."""
        metadata = getattr(self.maker, "metadata", {})
        if not metadata.get("render_modes"):
            raise AttributeError(f"{self.name} declares no render modes")
        return metadata

    @property
    def source(self) -> str:
        """The name of this code on the command line: relative to the current folder if the file is under it."""
        return written(Path(self.path), self.name)


def written(path: Path, name: str) -> str:
    """Return ``file.py:NAME``, relative to the current folder if the file is under it."""
    inside = path.is_relative_to(Path.cwd())
    return f"{path.relative_to(Path.cwd()) if inside else path}:{name}"


def find_env_file(text: str) -> EnvFile:
    """Read ``my_env.py:MyEnv`` and load that file; ZooError if the file, the name or the code is wrong."""
    path, name = find_in_file(text, "--env")
    return EnvFile(str(path), name)


def find_in_file(text: str, flag: str) -> tuple[Path, str]:
    """Read ``file.py:NAME``, the value of `flag`, and load that file; returns its path and the name of the definition.

    Raises ZooError if there is no such file or name, or if its code raises.
    """
    place, _, name = text.rpartition(":")
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ZooError(f"{flag} {text!r}: there is no file {path}. Give the file's path, then : and a name in it.")
    with errors_of_own_code(f"{flag} {text!r}: the file cannot be loaded", str(path)):
        module = load_file(path)
    if not callable(getattr(module, name, None)):
        made_here = [key for key in vars(module) if getattr(vars(module)[key], "__module__", None) == module.__name__]
        raise ZooError(
            f"{flag} {text!r}: the file has no class or function {name!r}.{did_you_mean(name, made_here)} "
            f"It defines: {', '.join(made_here) or 'nothing'}."
        )
    return path, name


def load_file(path: Path) -> ModuleType:
    """Import the Python file `path`, once in a process; modules beside it can be imported by it."""
    # A name of its own: `test.py` or `env.py` must not stand in for an installed module.
    name = f"{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    make_importable(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def make_importable(folder: Path) -> None:
    """Let modules in `folder` be imported, here and in worker processes; installed ones of the same name come first."""
    if str(folder) not in sys.path and not (folder == Path.cwd() and "" in sys.path):
        sys.path.append(str(folder))


def import_module(name: str, role: str = "that should register environments") -> ModuleType:
    """Import a module that is installed or in the current folder; ZooError, naming its `role`, if it cannot be
    imported."""
    make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ZooError(f"The module {name!r} imports another: {error}. Install that.") from error
        raise ZooError(
            f"Cannot import the package {name!r} {role}: {error}. It must be installed or lie in the current folder, "
            f"{Path.cwd()}."
        ) from error
    except Exception as error:
        raise ZooError(f"The module {name!r} cannot be imported: {_message(error)}") from error


def is_own_module(module: ModuleType) -> bool:
    """Return whether a module is under the current folder and not installed."""
    file = Path(getattr(module, "__file__", None) or sys.prefix)
    return file.is_relative_to(Path.cwd()) and not file.is_relative_to(sys.prefix)


def file_of(maker: Any) -> str:
    """Return the file that a class or function was read from; empty if that is unknown."""
    module = sys.modules.get(getattr(maker, "__module__", None) or "")
    return getattr(module, "__file__", None) or ""


@contextmanager
def errors_of_own_code(doing: str, file: str) -> Iterator[None]:
    """Convert any exception while `doing` something with the user's `file` to a `ZooError` that names the error and
    line."""
    try:
        yield
    except ZooError:
        raise
    except Exception as error:
        raise ZooError(f"{doing}: {_message(error, file)}") from error


def _message(error: Exception, file: str | None = None) -> str:
    """Return a description of an exception, and the line of `file` (of the code that raised it, if None) where it was
    raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = frames[-1:] if file is None else [frame for frame in frames if frame.filename == file]
    if not own or isinstance(error, SyntaxError):  # a SyntaxError names the line itself
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}: {error} ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})"


def load_algorithm(text: str) -> type[Any]:
    """Import the class that `text` names.

    Raises:
        ZooError: there is no such file, module or class; its code raises; it is not derived from an algorithm of
            polyak; or it has the name of another algorithm, whose runs would be in the same folder.
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
