"""Recording of the modules whose Python code a function runs."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from torch import nn

from polyak.nn.backends.tracing import UntraceableError


class Visited:
    """While the block runs, notes the modules whose methods run in this thread.

    Raises:
        UntraceableError: in the block, before code runs that is neither torch's nor polyak's: it may have side effects
            that no operation shows, such as a counter. At the start of the block, if a profiler is active.
    """

    def __init__(self) -> None:
        self._owners: dict[nn.Module, None] = {}
        self._before: Any = None

    @property
    def modules(self) -> list[nn.Module]:
        """The modules whose methods ran, in the order of their first call."""
        return list(self._owners)

    def __enter__(self) -> Visited:
        self._before = sys.getprofile()
        if self._before is not None and not callable(self._before):
            raise UntraceableError("a profiler runs in this thread")
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _KNOWN and not module.startswith("namedtuple_") and not _imports(frame):
            raise UntraceableError(f"{module}.{code.co_name}() is a program's own code, called for each action")
        if _is_method(code):
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                self._owners[owner] = None


_KNOWN = frozenset(sys.stdlib_module_names) | {"polyak", "torch", "numpy", "gymnasium", "typing_extensions"}
"""Packages whose functions have no effects besides their operations, as do classes that ``namedtuple`` makes. A
program's own file is ``__main__``."""


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported, which happens once."""
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def _is_method(code: CodeType) -> bool:
    return code.co_varnames[:1] == ("self",)
