"""Attributes of an algorithm that are stored in one of its parts."""

from operator import attrgetter
from typing import Any, Generic, overload

from typing_extensions import Self, TypeVar

Value = TypeVar("Value", default=Any)


class Held(Generic[Value]):
    """An attribute of a part that is read and set as an attribute of the algorithm.

    Args:
        path: the algorithm's name of the part, and the part's name of the attribute: ``"epsilon.rate"``; it may lead
            through further objects, as in ``"policy.actor.net"``.
    """

    def __init__(self, path: str) -> None:
        part, _, self._name = path.rpartition(".")
        self._part = attrgetter(part)

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...

    @overload
    def __get__(self, model: object, owner: type) -> Value: ...

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else getattr(self._part(model), self._name)

    def __set__(self, model: Any, value: Value) -> None:
        setattr(self._part(model), self._name, value)

    def __delete__(self, model: Any) -> None:
        delattr(self._part(model), self._name)
