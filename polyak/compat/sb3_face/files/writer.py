"""Writes pickles that name classes which are not installed here.

Python's own pickler refuses to name a class that it cannot import. This one writes any name, with a few opcodes of
protocol 4, without back references.
"""

from __future__ import annotations

import copyreg
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.compat.sb3_face.files import names
from polyak.compat.sb3_face.files.names import Name


@dataclass(frozen=True)
class Global:
    """A class or function of the peer's, by its name."""

    name: Name


@dataclass(frozen=True)
class Object:
    """An object of a class of the peer's: made without arguments, then given these attributes."""

    name: Name
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """The result of a class or function of the peer for these arguments."""

    name: Name
    args: tuple[Any, ...]


_NAMES_OF_CLASSES = {path: name for name, path in reversed(names.CLASSES.items())}


def dumps(value: Any) -> bytes:
    """Returns a value as a pickle.

    Args:
        value: plain values, containers, numpy arrays, spaces, classes, and :class:`Global`, :class:`Object` and
            :class:`Call` among them.

    Raises:
        ValueError: it holds something else, or a class that the peer does not have.
    """
    return b"\x80\x04" + b"".join(_opcodes(value)) + b"."


def _opcodes(value: Any) -> Iterable[bytes]:
    if value is None or type(value) in (bool, int, float, str, bytes):
        yield _plain(value)
    elif type(value) is tuple:
        yield from (b"(", *(code for item in value for code in _opcodes(item)), b"t")
    elif type(value) is list:
        yield from (b"](", *(code for item in value for code in _opcodes(item)), b"e")
    elif type(value) is dict:
        yield from (b"}(", *(code for pair in value.items() for item in pair for code in _opcodes(item)), b"u")
    elif isinstance(value, Global):
        yield from (_plain(value.name[0]), _plain(value.name[1]), b"\x93")
    elif isinstance(value, Call):
        yield from (*_opcodes(Global(value.name)), *_opcodes(value.args), b"R")
    elif isinstance(value, Object):
        yield from (*_opcodes(Global(value.name)), b")\x81", *_opcodes(dict(value.state)), b"b")
    elif isinstance(value, type):
        yield from _opcodes(class_name(value))
    elif isinstance(value, spaces.Space | np.ndarray | np.generic | np.dtype):
        yield from _reduced(value)
    else:
        raise ValueError(f"{value!r:.100} of type {type(value).__name__} cannot be written for Stable-Baselines3.")


def _plain(value: Any) -> bytes:
    if value is None:
        return b"N"
    if value is True or value is False:
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + struct.pack("<B", len(data)) + data
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(data)) + data
    return b"\x8e" + struct.pack("<Q", len(value)) + value


def _reduced(value: Any) -> Iterable[bytes]:
    """Yields the opcodes of arrays, dtypes and spaces, by their own reductions; these name numpy's and gymnasium's
    classes."""
    function, args, *rest = value.__reduce_ex__(2)
    state = rest[0] if rest else None
    if function is copyreg.__newobj__:  # type: ignore[attr-defined]
        yield from (*_opcodes(_own_name(args[0])), *_opcodes(tuple(args[1:])), b"\x81")
    else:
        yield from (*_opcodes(_own_name(function)), *_opcodes(_named(args)), b"R")
    if isinstance(state, dict):  # a space's random generator is not saved
        state = {key: None if key == "_np_random" else _plain_state(item) for key, item in state.items()}
    if state is not None:
        yield from (*_opcodes(_named(state)), b"b")


def _plain_state(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _named(value: Any) -> Any:
    """Returns the classes among arguments, by the name that they have wherever numpy is."""
    return (
        tuple(_own_name(item) if isinstance(item, type) else item for item in value) if type(value) is tuple else value
    )


def _own_name(function: Any) -> Global:
    module = function.__module__.replace("numpy._core", "numpy.core")  # the name in every version of numpy
    return Global((module, function.__qualname__))


def class_name(cls: type) -> Global:
    """Returns the peer's name of a class.

    Raises:
        ValueError: the class is polyak's and has no equal there.
    """
    for path, name in _NAMES_OF_CLASSES.items():
        module, _, attribute = path.partition(":")
        if cls.__name__ == attribute and f"{cls.__module__}.".startswith(f"{module}."):
            return Global(name)
    if cls.__module__.startswith("polyak."):
        raise ValueError(f"{cls.__module__}.{cls.__qualname__} has no equal in Stable-Baselines3.")
    return Global((cls.__module__, cls.__qualname__))


def enum_member(member: Enum, name: Name) -> Call:
    """Returns a member of an enumeration of the peer's."""
    return Call(name, (member.value,))
