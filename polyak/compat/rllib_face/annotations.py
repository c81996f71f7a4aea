"""Marks that programs written for RLlib put on their classes and methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Overriding:
    """A method that says of which class it takes one over; a class that holds it holds the method itself."""

    def __init__(self, method: Callable[..., Any], parent: type[Any]) -> None:
        self.method, self.parent = method, parent

    def __set_name__(self, owner: type[Any], name: str) -> None:
        if not issubclass(owner, self.parent):
            raise TypeError(f"override({self.parent.__name__}) of {name}: {owner.__name__} is no subclass of it.")
        if not hasattr(self.parent, name):
            raise NameError(
                f"override({self.parent.__name__}) of {name}: polyak's {self.parent.__name__} has no such method, so "
                "that it would never be called. See docs/scale.md for what is called."
            )
        setattr(owner, name, self.method)


def override(parent_cls: type[Any]) -> Callable[[T], T]:
    """Says that a method takes over one of ``parent_cls``.

    Raises:
        TypeError: once its class is made: that is no subclass. Before Python 3.12 it is the cause of a RuntimeError, as
            is the next one.
        NameError: then: ``parent_cls`` has no such method.
    """
    mark: Any = lambda method: _Overriding(method, parent_cls)  # noqa: E731
    return mark


def OverrideToImplementCustomLogic(marked: T) -> T:
    """Nothing: what it says is for readers."""
    return marked


OverrideToImplementCustomLogic_CallToSuperRecommended = ExperimentalAPI = OldAPIStack = OverrideToImplementCustomLogic


def PublicAPI(*marked: Any, **stability: Any) -> Any:
    """Nothing, with or without arguments: what it says is for readers."""
    return marked[0] if marked else OverrideToImplementCustomLogic


DeveloperAPI = PublicAPI
