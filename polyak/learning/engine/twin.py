"""Copies of a learner for tracing, so that the learner itself is unchanged.

While a step is traced, other threads may predict, save or read the weights. So the stand-ins for parameters, buffers
and optimizers are put into copies of the modules. Only objects that may lead to those, or that a step may write to, are
copied: modules, Python objects, containers, bound methods and closures. Numbers, arrays, other tensors, locks, files
and further objects made in C are shared, and no method of any class is called. So a module that ``copy.deepcopy``
refuses can be copied, and the copy does not take memory or time for weights.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from polyak.learning.engine.optimizer_rules import UntraceableError

T = TypeVar("T")

_CONTAINERS = frozenset((dict, list, set, OrderedDict, defaultdict, deque))
_SHARED = frozenset((type(None), bool, int, float, str, bytes, type, Tensor, nn.Parameter, np.ndarray))
"""Frequent shared types, checked first; others are shared, too."""


def twin(original: T, stand_ins: Mapping[int, Any]) -> T:
    """Returns a copy of an object that shares nothing with it that a step might change or replace.

    Args:
        original: a module or any other object.
        stand_ins: ``id`` of an object -> its replacement in the copy.

    Raises:
        UntraceableError: one of its modules cannot be copied.
    """
    return _Twins(stand_ins).whole(original)


class _Twins:
    """Copies that are filled one after another, so that cycles and long chains of objects work."""

    def __init__(self, stand_ins: Mapping[int, Any]) -> None:
        self._made: dict[int, Any] = dict(stand_ins)
        self._originals: list[Any] = []  # kept alive, so that ids are not reused meanwhile
        self._unfilled: list[Callable[[], None]] = []

    def whole(self, original: T) -> T:
        found: T = self._of(original)
        while self._unfilled:
            self._unfilled.pop()()
        return found

    def _of(self, value: Any) -> Any:
        """Returns the copy of ``value``, which may not be filled yet."""
        if id(value) in self._made:
            return self._made[id(value)]
        kind = type(value)
        if kind in _CONTAINERS:
            return self._container(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if kind is MethodType:
            owner = self._of(value.__self__)
            return value if owner is value.__self__ else MethodType(value.__func__, owner)
        if kind is partial:
            return self._partial(value)
        if kind is FunctionType:
            return self._function(value) if value.__closure__ else value
        return value if kind in _SHARED else self._object(value)

    def _begin(self, original: Any, empty: T, fill: Callable[[], None]) -> T:
        self._made[id(original)] = empty
        self._originals.append(original)
        self._unfilled.append(fill)
        return empty

    def _container(self, value: Any) -> Any:
        made = copy.copy(value)  # atomic: another thread may be adding to it

        def fill() -> None:
            parts = list(made.items() if isinstance(made, dict) else made)
            made.clear()
            if isinstance(made, dict):
                made.update((self._key(key), self._of(part)) for key, part in parts)
            elif isinstance(made, set):
                made.update(map(self._key, parts))
            else:
                made.extend(map(self._of, parts))

        return self._begin(value, made, fill)

    def _key(self, key: Any) -> Any:
        """Returns the copy of a key or a member of a set: its hash must not depend on values that are filled in later."""
        return self._of(key) if isinstance(key, nn.Module) else self._made.get(id(key), key)

    def _tuple(self, value: Any) -> Any:
        parts = [self._of(part) for part in value]
        if all(part is was for part, was in zip(parts, value, strict=True)):
            return value
        return tuple.__new__(type(value), parts)

    def _partial(self, value: partial[Any]) -> Any:
        func, args, keywords = self._tuple((value.func, value.args, tuple(value.keywords.items())))
        return partial(func, *args, **dict(keywords))

    def _function(self, value: FunctionType) -> Any:
        """Returns a copy of a closure with copies of its enclosed variables."""
        before = value.__closure__ or ()
        cells = tuple(CellType() for _ in before)
        made = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
        made.__kwdefaults__ = value.__kwdefaults__
        vars(made).update(vars(value))

        def fill() -> None:
            for cell, was in zip(cells, before, strict=True):
                try:
                    cell.cell_contents = self._of(was.cell_contents)
                except ValueError:  # a variable without a value
                    continue

        return self._begin(value, made, fill)

    def _object(self, value: Any) -> Any:
        made = _blank(value)
        if made is None:
            return value
        attributes = object.__getattribute__(value, "__dict__")

        def fill() -> None:
            vars(made).update({name: self._of(part) for name, part in dict(attributes).items()})
            for name in _slots(type(value)):
                if hasattr(value, name):
                    object.__setattr__(made, name, self._of(getattr(value, name)))

        # Some objects hold the attribute dictionaries of others, to set them quickly.
        self._made[id(attributes)] = vars(made)
        return self._begin(value, made, fill)


def _blank(value: Any) -> Any:
    """Returns a new object of the same class without attributes; None if copying its attributes would not suffice.

    Raises:
        UntraceableError: a module cannot be copied this way.
    """
    cls = type(value)
    is_module = isinstance(value, nn.Module)
    closes = hasattr(cls, "__del__")  # it would close what the two share
    if closes and is_module:
        raise UntraceableError(f"{cls.__qualname__} has a __del__ of its own, so that it cannot be copied to be traced")
    if not is_module and (closes or cls.__new__ is not object.__new__ or not getattr(value, "__dict__", None)):
        return None
    try:
        return object.__new__(cls)
    except TypeError as error:  # part of it is made in C
        if is_module:
            raise UntraceableError(f"{cls.__qualname__} cannot be copied to be traced: {error}") from error
        return None


def _slots(cls: type) -> Iterator[str]:
    """Yields the names of the attributes of a class's objects that are not in their dictionary."""
    for base in cls.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                yield f"_{base.__name__.lstrip('_')}{name}" if private else name
