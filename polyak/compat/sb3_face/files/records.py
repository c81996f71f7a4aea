"""Inert records of the objects that a pickle would build."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from polyak.compat.sb3_face.files import names
from polyak.compat.sb3_face.files.names import Name


class Sealed(type):
    """The type of record classes: nothing in a pickle can change one."""

    origin: Name

    def __setattr__(cls, name: str, value: Any) -> NoReturn:
        raise TypeError("a pickle may not change what it names")


class Record(metaclass=Sealed):
    """The parts from which a pickle would build an object. There is a subclass for each name in the pickle."""

    __slots__ = ("args", "items", "maker", "pairs", "state")
    origin: ClassVar[Name] = ("", "")

    args: tuple[Any, ...]
    """Arguments of the constructor or function."""
    state: Any
    """The argument of ``__setstate__``."""
    items: list[Any]
    """Items that would be appended."""
    pairs: list[tuple[Any, Any]]
    """Items that would be set by key."""
    maker: Record | None
    """The record that was called to make this one, if the called object was itself the result of a call."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Record:
        if cls.origin in names.SET_FUNCTION_STATE and args and isinstance(args[0], Record):
            args[0].state = args[1:]
        record = object.__new__(cls)
        record.args, record.state, record.items, record.pairs, record.maker = args, None, [], [], None
        return record

    def __call__(self, *args: Any) -> Record:
        record = Record(*args)
        record.maker = self
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs.append((key, value))

    def append(self, item: Any) -> None:
        """Note an item of a container."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Note several."""
        self.items.extend(items)


_classes: dict[Name, type[Record]] = {}


def record_class(name: Name) -> type[Record]:
    """Returns the class whose instances represent objects of the peer's class ``name``."""
    canonical = names.CANONICAL.get(name, name)
    if canonical not in _classes:
        _classes[canonical] = Sealed(canonical[1], (Record,), {"__slots__": (), "origin": canonical})  # type: ignore[assignment]
    return _classes[canonical]
