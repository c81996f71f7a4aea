"""Checks of a program's own code before recorded operations stand for it.

A recording repeats tensor operations only. So code that is neither torch's nor polyak's is recorded only if it has no
other effect, and if its result depends on nothing but its arguments and attributes of modules that a
:class:`~polyak.nn.backends.watch.Watch` checks. What cannot be seen to be so is refused.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterable
from enum import Enum
from functools import cache, partial
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from polyak.formats import COMPUTING
from polyak.nn.backends.tracing import UntraceableError
from polyak.nn.backends.watch import OF_ANY, is_own, still

_PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice, np.generic)
_FIXED = (*_PLAIN, torch.dtype, torch.device, type, BuiltinFunctionType)
"""Kinds of values that do not change."""
_WATCHED = (Tensor, nn.Module, gym.Space, torch.optim.Optimizer, torch.distributions.Distribution)
"""Kinds that are watched, or whose replacement is noticed and whose content a ``forward`` does not read."""
_LIBRARIES = ("torch", "numpy", "math", "typing", "collections", "functools", "itertools", "operator", "abc", "enum")
"""Further packages that code may call. Functions of the first two may still draw numbers: see :func:`_check_names`."""
_EFFECTS = {
    "STORE_ATTR",
    "STORE_SUBSCR",
    "STORE_SLICE",
    "STORE_GLOBAL",
    "DELETE_ATTR",
    "DELETE_SUBSCR",
    "DELETE_GLOBAL",
    "IMPORT_NAME",
    "CHECK_EXC_MATCH",  # code that goes on after an error also does so where a recording cannot follow
    "JUMP_IF_NOT_EXC_MATCH",
}
_EFFECTFUL = {
    *("print", "open", "input", "exec", "eval", "compile", "globals", "locals", "vars", "id", "hash", "setattr"),
    *("delattr", "breakpoint", "exit", "quit", "__import__"),
}
_STATEFUL = ("torch.random", "torch.optim", "torch.serialization", "numpy.random")
"""Modules of those libraries whose functions change something else than their result."""
_CHANGES = ("register_buffer", "register_parameter", "register_module", "add_module")
"""Methods that change a module."""
_READS = ("get", "items", "keys", "values", "copy", "index", "count")
"""Methods of containers that change nothing."""


class OwnCodeError(UntraceableError):
    """Raised for a program's own code that a recording may not stand for."""


def check_call(frame: FrameType, caller_is_own: bool) -> None:
    """Check a function of a program's own code that is about to run.

    Args:
        frame: the function's.
        caller_is_own: whether such code calls it.

    Raises:
        OwnCodeError: it may do something besides its operations, or depend on something that is not watched.
    """
    code = frame.f_code
    reason = _effect(code) or _check_names(frame)
    names = frame.f_locals
    if not reason and code.co_freevars:
        outer = list(map(id, frame.f_back.f_locals.values())) if caller_is_own and frame.f_back is not None else []
        enclosed = [name for name in code.co_freevars if name in names and name != "__class__"]
        loose = [n for n in enclosed if id(names[n]) not in outer and not _is_fixed(names[n], nn.Module)]
        reason = f"reads {loose[0]} of the function around it" if loose else ""
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        if not reason and not name.startswith(".") and not _is_known(names.get(name)):  # .0 is an iterator
            reason = f"takes a {type(names[name]).__qualname__}, which may change unnoticed"
    if reason:
        owner = names[code.co_varnames[0]] if code.co_argcount else None
        place = type(owner).__qualname__ if isinstance(owner, nn.Module) else frame.f_globals.get("__name__")
        raise OwnCodeError(f"{place}.{code.co_name}() {reason}")


def check_builtin(function: Any, kept: Iterable[Any]) -> None:
    """Check a function of C that a program's own code is about to call.

    Args:
        function: it may be a method of one of Python's containers.
        kept: attributes of modules, which it may only read.

    Raises:
        OwnCodeError: it may have effects besides its result and changes of a local object.
    """
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Tensor):
        return
    if isinstance(owner, list | dict | set) and function.__name__ not in _READS and _holds(kept, owner):
        raise OwnCodeError(f"{function.__name__}() changes an attribute")
    home = owner.__name__ if isinstance(owner, ModuleType) else getattr(function, "__module__", None)
    home = str(home or type(owner).__module__)
    draws = home.startswith("numpy.random") or isinstance(owner, torch.Generator)
    home = home.partition(".")[0].lstrip("_")
    if draws or home not in ("builtins", *_LIBRARIES) or (home == "builtins" and function.__name__ in _EFFECTFUL):
        raise OwnCodeError(f"it calls {home}.{getattr(function, '__qualname__', function)}()")


def check_library(frame: FrameType) -> None:
    """Check a library's function that a program's own code calls.

    Raises:
        OwnCodeError: the library is none of those whose functions are known to compute and do nothing else.
    """
    name = str(frame.f_globals.get("__name__", ""))
    known = name.partition(".")[0] in _LIBRARIES or name.startswith((*COMPUTING, "namedtuple_"))
    if not known or name.startswith(_STATEFUL) or frame.f_code.co_name in _CHANGES:
        raise OwnCodeError(f"it calls {name}.{frame.f_code.co_name}()")


def attributes(module: nn.Module) -> dict[str, Any]:
    """Returns a module's attributes with copies of its containers, to detect that they have changed.

    Raises:
        OwnCodeError: it has an attribute whose changes cannot be detected.
    """
    held = kept_by(module)
    for name, value in held.items():
        if not _is_known(value):
            raise OwnCodeError(
                f"{type(module).__qualname__}.{name} is a {type(value).__qualname__}, which may change unnoticed"
            )
    return {name: still(value) for name, value in held.items()}


def kept_by(module: nn.Module) -> dict[str, Any]:
    """Returns the attributes of a module, and of those of its classes that are a program's own."""
    owns = [base for base in reversed(type(module).__mro__[:-1]) if is_own(base)]
    shared = {name: getattr(base, name) for base in owns for name in vars(base) if not name.startswith(_ADDED)}
    own = {name: value for name, value in vars(module).items() if name not in OF_ANY}
    return {name: value for name, value in shared.items() if not isinstance(value, property)} | own


_ADDED = ("__", "_abc_", "_is_protocol")
"""Beginnings of the names of what Python adds to classes."""
_ACCESSES = (property, classmethod, staticmethod)


def _holds(kept: Iterable[Any], container: Any) -> bool:
    """Whether one of the values is the container, or has it inside."""
    for value in kept:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if value is container or _holds(inside, container):
            return True
    return False


def _is_changeable(cls: type) -> bool:
    """Whether a class is a program's own and keeps values, as a class for options does."""
    if cls.__module__.startswith(("builtins", "polyak", *_LIBRARIES)) or issubclass(cls, tuple | Enum):
        return False
    return any(not callable(v) and not isinstance(v, _ACCESSES) and n[:2] != "__" for n, v in vars(cls).items())


def _is_fixed(value: Any, *others: type) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(_is_fixed(part, *others) for part in value)
    if isinstance(value, FunctionType):
        return _is_fixed((*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()))
    if isinstance(value, partial):
        parts = (value.func, *value.args, *value.keywords.values())
        return not isinstance(value.func, BuiltinFunctionType) and _is_fixed(parts, Tensor, nn.Module, *others)
    if isinstance(value, MethodType):
        return _is_fixed(value.__self__, *_WATCHED)
    return isinstance(value, (*_FIXED, *others))


def _is_known(value: Any) -> bool:
    """Whether a change of an argument or an attribute is noticed."""
    if isinstance(value, dict | list | tuple | set):
        return all(map(_is_known, value.values() if isinstance(value, dict) else value))
    return _is_fixed(value, *_WATCHED) or type(value).__module__.startswith(COMPUTING)


@cache
def _effect(code: CodeType) -> str:
    """Returns what an instruction of the code does besides computing, or an empty string."""
    for each in dis.get_instructions(code):
        if each.opname in _EFFECTS or (each.opname == "STORE_DEREF" and each.argval in code.co_freevars):
            return f"has an effect: {each.opname} {each.argval}"
    return ""


@cache
def _globals_of(code: CodeType) -> frozenset[str]:
    return frozenset(each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")


def _check_names(frame: FrameType) -> str:
    """Returns why a global name that the code reads is refused, or an empty string."""
    for name in _globals_of(frame.f_code):
        value = frame.f_globals.get(name, vars(builtins).get(name))
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES and not value.__name__.startswith(COMPUTING):
                return f"uses the module {name}"
            if value.__name__ == "numpy.random" or (value is np and "random" in frame.f_code.co_names):
                return "uses numpy.random"
        elif isinstance(value, type):
            if _is_changeable(value) and not isinstance(frame.f_locals.get("self"), value):
                return f"reads the class {name}, whose attributes may change"
        elif isinstance(value, FunctionType | BuiltinFunctionType) and _is_fixed(value):
            if name in _EFFECTFUL:
                return f"calls {name}()"
        elif not name.isupper() or not _is_fixed(value):
            return f"reads the variable {name}, which may change"
    return ""
