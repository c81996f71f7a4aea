"""Attributes of an algorithm that belong to a part of it."""

from typing import Any, Generic, TypeVar, overload

from typing_extensions import Self

Value = TypeVar("Value")


class Held(Generic[Value]):
    """An attribute of a part, read and set as one of the algorithm that holds the part.

    Args:
        path: the algorithm's name of the part, and the part's name of the attribute: ``"epsilon.rate"``.
    """

    def __init__(self, path: str) -> None:
        self._part, self._name = path.split(".")

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...

    @overload
    def __get__(self, model: object, owner: type) -> Value: ...

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else getattr(getattr(model, self._part), self._name)

    def __set__(self, model: Any, value: Value) -> None:
        setattr(getattr(model, self._part), self._name, value)

    def __delete__(self, model: Any) -> None:
        delattr(getattr(model, self._part), self._name)
