"""Recording of the modules whose Python code a function runs."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any, TypeGuard

from torch import nn

from polyak.nn.backends.own_code import OwnCodeError, attributes, check_builtin, check_call, check_library, kept_by
from polyak.nn.backends.tracing import UntraceableError


class Visited:
    """While the block runs, notes the modules whose methods run in this thread, and checks a program's own code.

    Raises:
        UntraceableError: in the block, before code runs that is neither torch's nor polyak's, and of which
            :mod:`~polyak.nn.backends.own_code` cannot tell that it only computes. At the start of the block, if a
            profiler is active. At its end, if an attribute of a module with such code has changed.
    """

    def __init__(self) -> None:
        self._owners: dict[nn.Module, None] = {}
        self._before: Any = None
        self._own: set[CodeType] = set()
        self._attributes: dict[nn.Module, dict[str, Any]] = {}
        self._refused: OwnCodeError | None = None
        self._start: FrameType | None = None

    @property
    def has_own_code(self) -> bool:
        """Whether code ran that is neither torch's nor polyak's."""
        return bool(self._own)

    @property
    def modules(self) -> list[nn.Module]:
        """The modules whose methods ran, in the order of their first call."""
        return list(self._owners)

    def __enter__(self) -> Visited:
        self._before = sys.getprofile()
        if self._before is not None and not callable(self._before):
            raise UntraceableError("a profiler runs in this thread")
        self._start = sys._getframe(1)
        sys.setprofile(self._note)
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        sys.setprofile(self._before)
        self._start = None
        if kind is None and self._refused is not None:  # the code has caught it
            raise self._refused
        if kind is None:
            for module, before in self._attributes.items():
                if before != attributes(module):
                    raise OwnCodeError(f"{type(module).__qualname__} changes its attributes")

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        try:
            self._check(frame, event, argument)
        except OwnCodeError as error:
            self._refused = error
            raise

    def _check(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "c_call" and code in self._own:
            check_builtin(argument, (value for module in self._attributes for value in kept_by(module).values()))
        if event != "call":
            return
        module = str(frame.f_globals.get("__name__", ""))
        by_own = frame.f_back is not None and frame.f_back.f_code in self._own
        owners = list(filter(_is_module, [frame.f_locals.get("self")] if _is_method(code) else ()))
        if (
            module.partition(".")[0] not in _KNOWN
            and not module.startswith("namedtuple_")
            and not _imports(frame, self._start)
        ):
            check_call(frame, by_own)
            self._own.add(code)
            owners = list(filter(_is_module, frame.f_locals.values()))
            owners += [
                part for each in owners for name, part in each._modules.items() if name in code.co_names and part
            ]
            self._attributes |= {each: attributes(each) for each in owners if each not in self._attributes}
        elif by_own or module == "torch.random":  # whose functions are wrapped in others
            check_library(frame)
        self._owners |= dict.fromkeys(owners)


_KNOWN = frozenset(sys.stdlib_module_names) | {"polyak", "torch", "numpy", "gymnasium", "typing_extensions"}
"""Packages whose functions have no effects besides their operations, as do classes that ``namedtuple`` makes. A
program's own file is ``__main__``."""


def _imports(frame: FrameType | None, start: FrameType | None) -> bool:
    """Whether a module is being imported since ``start``, which happens once."""
    while frame is not None and frame is not start and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None and frame is not start


def _is_module(value: Any) -> TypeGuard[nn.Module]:
    return isinstance(value, nn.Module)


def _is_method(code: CodeType) -> bool:
    return code.co_varnames[:1] == ("self",)
